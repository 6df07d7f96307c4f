//! Which tenant a request is about: `?tenant=NAME`, else the default one. Each tenant has routes of its own, over its
//! own store, world and sources, so that no handler can reach another's.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State as Extracted};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use denv_schema::Name;
use percent_encoding::percent_decode_str;
use tower::ServiceExt as _;

use super::{Api, ApiError, router};

struct Tenants {
    routes: BTreeMap<Name, Router>,
    /// Hooks name a source alone; its name is unique.
    of_source: BTreeMap<String, Name>,
    default: Name,
}

/// The routes of all tenants. There must be one at least.
pub fn routers(tenants: impl IntoIterator<Item = (Name, Arc<Api>)>) -> Router {
    let (mut routes, mut of_source) = (BTreeMap::new(), BTreeMap::new());
    for (tenant, api) in tenants {
        let sources = api.sources.iter().map(|source| (source.name().to_owned(), tenant.clone()));
        of_source.extend(sources);
        routes.insert(tenant, router(api));
    }
    let default = Some(denv_link::identity::tenant()).filter(|tenant| routes.contains_key(tenant));
    let default = default.or_else(|| routes.keys().next().cloned()).expect("there is a tenant");
    let tenants = Arc::new(Tenants { routes, of_source, default });
    Router::new().fallback(dispatch).with_state(tenants)
}

async fn dispatch(Extracted(tenants): Extracted<Arc<Tenants>>, mut request: Request) -> Response {
    let (asked, uri) = split(request.uri());
    if asked.is_none() && uri.path() == "/healthz" {
        return health(&tenants).await;
    }
    let hooked = request.uri().path().strip_prefix("/v1/webhooks/");
    let hooked = hooked.and_then(|source| tenants.of_source.get(source));
    let found = match (&asked, hooked) {
        (Some(asked), None) => tenants.routes.get(asked.as_str()),
        (_, hooked) => tenants.routes.get(hooked.unwrap_or(&tenants.default)),
    };
    let Some(routes) = found else {
        let asked: String = asked.unwrap_or_default().chars().filter(|c| !c.is_control()).take(64).collect();
        return ApiError::not_found(format!("there is no tenant `{asked}`"))
            .hint("tenants are set in the reconciler's sources file (--sources)")
            .into_response();
    };
    *request.uri_mut() = uri;
    match routes.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// The process is as well as the tenant that is worst off.
async fn health(tenants: &Tenants) -> Response {
    let mut last = StatusCode::OK.into_response();
    for routes in tenants.routes.values() {
        let request = Request::builder().uri("/healthz").body(Body::empty()).expect("it is well formed");
        last = match routes.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if !last.status().is_success() {
            break;
        }
    }
    last
}

/// The tenant that is asked for, and the address without it, which handlers know nothing of.
fn split(uri: &Uri) -> (Option<String>, Uri) {
    let query = uri.query().unwrap_or_default();
    let (of_tenant, rest): (Vec<&str>, Vec<&str>) =
        query.split('&').filter(|pair| !pair.is_empty()).partition(|pair| pair.starts_with("tenant="));
    let Some(tenant) = of_tenant.last().map(|pair| &pair["tenant=".len()..]) else {
        return (None, uri.clone());
    };
    let tenant = percent_decode_str(tenant).decode_utf8_lossy().into_owned();
    let rest = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{}{rest}", uri.path()).parse().ok();
    (Some(tenant), Uri::from_parts(parts).unwrap_or_else(|_| uri.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenant_is_taken_out_of_the_address() {
        for (uri, tenant, rest) in [
            ("/v1/units", None, "/v1/units"),
            ("/v1/units?stage=chat%2Fprod", None, "/v1/units?stage=chat%2Fprod"),
            ("/v1/units?tenant=acme", Some("acme"), "/v1/units"),
            ("/v1/units?a=1&tenant=ac%6De&b=2", Some("acme"), "/v1/units?a=1&b=2"),
            ("/v1/units?tenant=a&tenant=b", Some("b"), "/v1/units"),
            ("/v1/units?tenants=a", None, "/v1/units?tenants=a"),
        ] {
            let (found, stripped) = split(&uri.parse().unwrap());
            assert_eq!((found.as_deref(), stripped.to_string().as_str()), (tenant, rest), "{uri}");
        }
    }
}
