use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::json;

use crate::proxy::{Answer, ProxyError};

/// An error in OpenAI's shape.
pub(super) fn error(error: &ProxyError) -> Response<Answer> {
    let status = error.status();
    let body = json!({"error": {
        "message": error.to_string(),
        "type": error.kind(),
        "param": error.param(),
        "code": error.code(),
    }});
    let mut response = json(status, &body);
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// An error that no request to an engine came of.
pub(super) fn failure(status: StatusCode, message: &str) -> Response<Answer> {
    let kind = if status.is_server_error() { "service_unavailable_error" } else { "invalid_request_error" };
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": null}});
    json(status, &body)
}

pub(super) fn models<'a>(names: impl Iterator<Item = &'a str>) -> Response<Answer> {
    // When a model was made is in no manifest.
    let model = |name| json!({"id": name, "object": "model", "created": 0, "owned_by": "denv"});
    json(StatusCode::OK, &json!({"object": "list", "data": names.map(model).collect::<Vec<_>>()}))
}

pub(super) fn metrics(text: String) -> Response<Answer> {
    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    with_type(StatusCode::OK, openmetrics, text.into())
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response<Answer> {
    let body = serde_json::to_vec(body).expect("plain data always serialises to JSON");
    with_type(status, "application/json", body.into())
}

fn with_type(status: StatusCode, media_type: &'static str, body: Bytes) -> Response<Answer> {
    let mut response = Response::new(Answer::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
