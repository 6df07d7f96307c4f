//! The API's own description, made from the types it speaks.

use axum::Json;
use denv_gates::parity::Report;
use denv_planner::FleetSurvey;
use denv_schema::api::{
    ApprovalRequest, DeploymentView, ErrorBody, EventView, GatewayView, HookAnswer, HostView, List,
    ManifestView, RolloutRequest, ScaleRequest, SourceView, StageView, TokenRequest, TokenResponse, UnitView,
    UsageView,
};
use denv_schema::change::{ChangeRequest, ChangeView};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

pub(super) async fn openapi() -> Json<Value> {
    Json(document())
}

fn document() -> Value {
    let mut describe = Describe {
        generator: SchemaSettings::draft2020_12()
            .with(|settings| settings.definitions_path = "/components/schemas".into())
            .into_generator(),
        paths: Map::new(),
    };
    let stage = ["environment", "stage"];
    describe.get::<List<SourceView>>("/v1/sources", "Where manifests come from, and how that goes", &[], &[]);
    describe.post::<(), SourceView>("/v1/sources/{name}/refresh", "Look at the remote now", &["name"]);
    describe.post::<ApprovalRequest, SourceView>(
        "/v1/sources/{name}/approve",
        "Accept the revision that waits because of what it deletes",
        &["name"],
    );
    describe.post::<ChangeRequest, ChangeView>(
        "/v1/sources/{name}/changes",
        "Change manifests in the source's repository, as a commit in the asker's name",
        &["name"],
    );
    describe.get::<Value>("/v1/snapshot", "Everything a plan is made of, for previews", &[], &[]);
    describe.post::<Value, HookAnswer>(
        "/v1/webhooks/{source}",
        "A forge's push hook: it carries the forge's signature instead of a token",
        &["source"],
    );
    describe.get::<List<StageView>>("/v1/stages", "Every stage, whole", &[], &[]);
    describe.get::<StageView>("/v1/stages/{environment}/{stage}", "One stage, whole", &stage, &[]);
    describe.get::<List<FleetSurvey>>(
        "/v1/stages/{environment}/{stage}/placement",
        "Where the next unit would go, and why nowhere else",
        &stage,
        &[],
    );
    describe.post::<RolloutRequest, StageView>(
        "/v1/stages/{environment}/{stage}/rollout",
        "Pause, resume, abort or retry a deployment",
        &stage,
    );
    describe.post::<ScaleRequest, StageView>(
        "/v1/stages/{environment}/{stage}/scale",
        "Say how many units are to run, within the ranges of the manifest",
        &stage,
    );
    describe.get::<Report>(
        "/v1/stages/{environment}/{stage}/parity",
        "The last run of the stage's parity suite, with each case and every difference",
        &stage,
        &["deployment", "when"],
    );
    describe.get::<List<DeploymentView>>(
        "/v1/deployments",
        "Deployments, the newest first",
        &[],
        &["stage", "limit"],
    );
    describe.get::<List<UnitView>>("/v1/units", "Units", &[], &["stage"]);
    describe.get::<List<HostView>>("/v1/hosts", "Hosts", &[], &[]);
    describe.get::<List<GatewayView>>("/v1/gateways", "Gateways", &[], &[]);
    describe.get::<List<ManifestView>>("/v1/manifests/{kind}", "Manifests in force", &["kind"], &[]);
    describe.get::<List<EventView>>("/v1/events", "What happened", &[], &["after", "subject", "limit"]);
    describe.get::<EventView>("/v1/watch", "What happens, as server-sent events", &[], &["after"]);
    describe.get::<List<UsageView>>("/v1/usage", "Tokens by customer and model", &[], &["since", "customer"]);
    describe.post::<TokenRequest, TokenResponse>("/v1/tokens", "Make a one-time join token", &[]);
    describe.finish()
}

struct Describe {
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

impl Describe {
    fn get<Answer: JsonSchema>(&mut self, path: &str, summary: &str, in_path: &[&str], in_query: &[&str]) {
        let answer = self.generator.subschema_for::<Answer>();
        let media = if path == "/v1/watch" { "text/event-stream" } else { "application/json" };
        let mut parameters = path_parameters(in_path);
        parameters.extend(
            in_query
                .iter()
                .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } })),
        );
        let operation = json!({
            "summary": summary,
            "parameters": parameters,
            "responses": self.responses(media, answer.to_value()),
        });
        self.paths.insert(path.to_owned(), json!({ "get": operation }));
    }

    fn post<Request: JsonSchema, Answer: JsonSchema>(&mut self, path: &str, summary: &str, in_path: &[&str]) {
        let answer = self.generator.subschema_for::<Answer>();
        let mut operation = json!({
            "summary": summary,
            "parameters": path_parameters(in_path),
            "responses": self.responses("application/json", answer.to_value()),
        });
        let request = self.generator.subschema_for::<Request>().to_value();
        if request.get("type").and_then(Value::as_str) != Some("null") {
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": request } } });
        }
        self.paths.insert(path.to_owned(), json!({ "post": operation }));
    }

    fn responses(&mut self, media: &str, answer: Value) -> Value {
        let error = self.generator.subschema_for::<ErrorBody>();
        json!({
            "200": { "description": "done", "content": { media: { "schema": answer } } },
            "default": { "description": "refused", "content": { "application/json": { "schema": error } } },
        })
    }

    fn finish(mut self) -> Value {
        json!({
            "openapi": "3.1.0",
            "info": { "title": "denv", "version": env!("CARGO_PKG_VERSION") },
            "security": [{ "token": [] }],
            "paths": self.paths,
            "components": {
                "schemas": self.generator.take_definitions(true),
                "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            },
        })
    }
}

fn path_parameters(names: &[&str]) -> Vec<Value> {
    names
        .iter()
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_in_the_document_leads_somewhere() {
        let document = document();
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1).map(|rest| &rest[..rest.find('"').unwrap()]) {
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
        assert!(document["paths"]["/v1/tokens"]["post"]["requestBody"].is_object());
        assert!(document["paths"]["/v1/sources/{name}/refresh"]["post"].get("requestBody").is_none());
    }
}
