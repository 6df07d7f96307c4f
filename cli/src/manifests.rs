//! The columns of manifests in force. What they show is read from the manifest as it was sent, so that a newer
//! control plane's fields are no hindrance.

use denv_schema::api::ManifestView;
use denv_schema::manifest::Kind;
use serde_json::Value;

use crate::table::{self, Cell};
use crate::text::brief;

pub(crate) fn render(kind: Kind, manifests: &[ManifestView]) -> String {
    let columns = columns(kind);
    let header =
        ["NAME"].into_iter().chain(columns.iter().map(|(title, _)| *title)).map(str::to_owned).collect();
    let row = |manifest: &ManifestView| {
        let cells = columns.iter().map(|(_, cell)| Cell::plain(brief(&cell(&manifest.spec), 60)));
        [Cell::plain(&manifest.name)].into_iter().chain(cells).collect()
    };
    table::lines(header, manifests.iter().map(row).collect())
}

type Show = fn(&Value) -> String;

fn columns(kind: Kind) -> &'static [(&'static str, Show)] {
    match kind {
        Kind::Provider => &[("KIND", |spec| text(&spec["kind"]))],
        Kind::Fleet => &[
            ("PROVIDER", |spec| text(&spec["provider"])),
            ("REGION", |spec| text(&spec["region"])),
            ("PURCHASE", |spec| text(&spec["purchase"])),
            ("ACCELERATOR", |spec| text(&spec["accelerator"])),
            ("HOSTS", |spec| format!("{}-{}", text(&spec["hosts"]["min"]), text(&spec["hosts"]["max"]))),
        ],
        Kind::Host => &[("FLEET", |spec| text(&spec["fleet"]))],
        Kind::WeightCache => &[
            ("REGION", |spec| text(&spec["region"])),
            ("URL", |spec| text(&spec["url"])),
            ("SIZE", |spec| text(&spec["size"])),
        ],
        Kind::Engine => &[("KIND", |spec| text(&spec["kind"])), ("VERSION", |spec| text(&spec["version"]))],
        Kind::Recipe => &[
            ("MODEL", |spec| text(&spec["model"])),
            ("ENGINE", |spec| text(&spec["engine"])),
            ("ACCELERATOR", |spec| text(&spec["hardware"]["accelerator"])),
        ],
        Kind::Release => &[
            ("MODEL", |spec| text(&spec["model"]["name"])),
            ("ENGINE", |spec| text(&spec["engine"])),
            ("RECIPE", |spec| text(&spec["recipe"])),
            ("TOPOLOGY", |spec| text(&spec["topology"]["mode"])),
        ],
        Kind::Environment => &[("STAGES", |spec| list(&spec["stages"], text))],
        Kind::Stage => &[
            ("ENVIRONMENT", |spec| text(&spec["environment"])),
            ("RELEASE", |spec| text(&spec["release"])),
            ("FLEETS", |spec| list(&spec["fleets"], |fleet| text(&fleet["name"]))),
        ],
        Kind::ParitySuite => &[
            ("REFERENCE", |spec| text(&spec["reference"]["kind"])),
            ("CASES", |spec| spec["cases"].as_array().map_or(0, Vec::len).to_string()),
        ],
        Kind::Alarm => &[
            ("METRIC", |spec| text(&spec["metric"])),
            ("FIRES", |spec| {
                let bounds = [
                    ("above", "above"),
                    ("below", "below"),
                    ("risesBy", "risen by"),
                    ("fallsBy", "fallen by"),
                ];
                let bound = bounds.iter().find(|(field, _)| !spec[*field].is_null());
                bound.map_or_else(
                    || "-".to_owned(),
                    |(field, words)| format!("{words} {}", text(&spec[*field])),
                )
            }),
            ("WINDOW", |spec| text(&spec["window"])),
        ],
        Kind::Endpoint => &[("MODELS", |spec| {
            list(&spec["models"], |model| format!("{} on {}", text(&model["name"]), text(&model["stage"])))
        })],
        Kind::Customer => &[
            ("DISPLAY NAME", |spec| text(&spec["displayName"])),
            ("ENDPOINTS", |spec| match &spec["endpoints"] {
                Value::Null => "all".to_owned(),
                endpoints => list(endpoints, text),
            }),
        ],
        Kind::Key => &[
            ("CUSTOMER", |spec| text(&spec["customer"])),
            ("HASH", |spec| text(&spec["hash"]).chars().take("sha256:".len() + 12).collect()),
        ],
        Kind::PriceList => &[
            ("CURRENCY", |spec| text(&spec["currency"])),
            ("MODELS", |spec| list(&spec["models"], |model| text(&model["model"]))),
        ],
        Kind::Access => &[
            ("EMAIL", |spec| text(&spec["email"])),
            ("GRANTS", |spec| {
                let grant =
                    |grant: &Value| format!("{} of {}", text(&grant["role"]), list(&grant["stages"], text));
                list(&spec["grants"], grant)
            }),
        ],
        Kind::Webhook => {
            &[("URL", |spec| text(&spec["url"])), ("EVENTS", |spec| list(&spec["events"], text))]
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn list(value: &Value, show: Show) -> String {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() { "-".to_owned() } else { items.iter().map(show).collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(kind: Kind, name: &str, spec: Value) -> ManifestView {
        ManifestView { kind, name: name.to_owned(), spec }
    }

    #[test]
    fn manifests_show_what_tells_them_apart() {
        let hosts = json!({"min": 0, "max": 8});
        let fleet = json!({"provider": "own", "region": "fra", "purchase": "owned", "accelerator": "h200", "hosts": hosts});
        insta::assert_snapshot!(render(Kind::Fleet, &[view(Kind::Fleet, "racks-fra", fleet)]), @"
        NAME        PROVIDER   REGION   PURCHASE   ACCELERATOR   HOSTS
        racks-fra   own        fra      owned      h200          0-8
        ");
        let models = json!({"models": [{"name": "flash", "stage": "chat/prod"}, {"name": "pro", "stage": "pro/prod"}]});
        insta::assert_snapshot!(render(Kind::Endpoint, &[view(Kind::Endpoint, "chat", models)]), @"
        NAME   MODELS
        chat   flash on chat/prod, pro on pro/prod
        ");
        let customers = [
            view(Kind::Customer, "demo", json!({})),
            view(Kind::Customer, "acme", json!({"endpoints": ["chat"]})),
        ];
        insta::assert_snapshot!(render(Kind::Customer, &customers), @"
        NAME   DISPLAY NAME   ENDPOINTS
        demo   -              all
        acme   -              chat
        ");
    }

    #[test]
    fn a_spec_that_lacks_everything_is_shown_all_the_same() {
        for kind in Kind::ALL {
            assert!(render(*kind, &[view(*kind, "x", json!({}))]).starts_with("NAME"));
        }
    }
}
