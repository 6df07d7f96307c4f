//! What a hook tells. Pure.

use axum::http::HeaderMap;
use serde::Deserialize;

/// What is to be done about a hook.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The branch may have moved.
    Push,
    /// It concerns nothing here: why, for the forge's list of deliveries.
    Nothing(String),
    /// It can't be understood.
    Nonsense(String),
}

/// What the source follows.
pub(super) struct Followed<'a> {
    pub(super) url: &'a str,
    pub(super) branch: &'a str,
}

/// The few fields that forges' pushes share.
#[derive(Deserialize)]
struct Push {
    #[serde(rename = "ref")]
    reference: String,
    repository: Option<Repository>,
    /// GitLab's name for it.
    project: Option<Repository>,
}

#[derive(Deserialize)]
struct Repository {
    full_name: Option<String>,
    path_with_namespace: Option<String>,
}

pub(super) fn meaning(headers: &HeaderMap, body: &[u8], followed: &Followed<'_>) -> Meaning {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let names = ["x-gitea-event", "x-forgejo-event", "x-github-event", "x-gitlab-event"];
    let Some(event) = names.into_iter().find_map(text) else {
        return Meaning::Nonsense(
            "there is no header that names the event, such as `X-GitHub-Event`".to_owned(),
        );
    };
    match event {
        "push" | "Push Hook" => {}
        "ping" => return Meaning::Nothing("pong".to_owned()),
        other => return Meaning::Nothing(format!("`{}` events say nothing of a branch", short(other))),
    }
    let Ok(push) = serde_json::from_slice::<Push>(body) else {
        return Meaning::Nonsense(
            "the push is not in JSON; set the hook's content type to `application/json`".to_owned(),
        );
    };
    let branch = push.reference.strip_prefix("refs/heads/");
    if branch != Some(followed.branch) {
        let pushed = short(branch.unwrap_or(&push.reference));
        return Meaning::Nothing(format!("`{pushed}` was pushed; the source follows `{}`", followed.branch));
    }
    let repository = push.project.or(push.repository);
    let name = repository.and_then(|repository| repository.path_with_namespace.or(repository.full_name));
    match name {
        Some(name) if !is_at(followed.url, &name) => {
            Meaning::Nothing(format!("the source does not follow the repository `{}`", short(&name)))
        }
        _ => Meaning::Push,
    }
}

/// Whether the repository of this name may be at the address. Forges are often reached in other ways than they know of
/// themselves, so hosts aren't compared; a path on this machine may be a mirror of anything.
fn is_at(url: &str, name: &str) -> bool {
    let remote = match url.split_once("://") {
        Some(("file", _)) => None,
        Some((_, rest)) => rest.split_once('/').map(|(_, path)| path),
        None => url.split_once(':').filter(|(host, _)| !host.contains('/')).map(|(_, path)| path),
    };
    let Some(path) = remote else { return true };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path).to_lowercase();
    let name = name.trim_matches('/').to_lowercase();
    path == name || path.strip_suffix(&name).is_some_and(|before| before.ends_with('/'))
}

/// What a stranger wrote is shown on one line of bearable length.
fn short(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const FOLLOWED: Followed<'_> = Followed { url: "https://git.example.com/ml/serving.git", branch: "main" };

    fn event(header: &str, event: &str) -> HeaderMap {
        let name = HeaderName::from_bytes(header.as_bytes()).unwrap();
        [(name, HeaderValue::from_str(event).unwrap())].into_iter().collect()
    }

    fn github(body: &serde_json::Value) -> Meaning {
        meaning(&event("X-GitHub-Event", "push"), body.to_string().as_bytes(), &FOLLOWED)
    }

    #[test]
    fn pushes_to_the_branch_are_understood_from_each_forge() {
        let pushed =
            json!({"ref": "refs/heads/main", "repository": {"full_name": "ml/serving", "private": true}});
        assert_eq!(github(&pushed), Meaning::Push);
        let gitea = meaning(&event("X-Gitea-Event", "push"), pushed.to_string().as_bytes(), &FOLLOWED);
        assert_eq!(gitea, Meaning::Push);
        let pushed = json!({
            "object_kind": "push", "ref": "refs/heads/main", "project": {"path_with_namespace": "ml/serving"},
            "repository": {"name": "serving"},
        });
        let gitlab = meaning(&event("X-Gitlab-Event", "Push Hook"), pushed.to_string().as_bytes(), &FOLLOWED);
        assert_eq!(gitlab, Meaning::Push);
    }

    #[test]
    fn what_does_not_concern_the_source_is_ignored_in_words() {
        let push = |reference: &str, name: &str| {
            github(&json!({"ref": reference, "repository": {"full_name": name}}))
        };
        let nothing = |words: &str| Meaning::Nothing(words.to_owned());
        assert_eq!(
            push("refs/heads/topic", "ml/serving"),
            nothing("`topic` was pushed; the source follows `main`")
        );
        assert_eq!(
            push("refs/tags/main", "ml/serving"),
            nothing("`refs/tags/main` was pushed; the source follows `main`")
        );
        assert_eq!(
            push("refs/heads/main", "fork/serving"),
            nothing("the source does not follow the repository `fork/serving`")
        );
        assert_eq!(meaning(&event("X-GitHub-Event", "ping"), b"{}", &FOLLOWED), nothing("pong"));
        let issue = meaning(&event("X-GitHub-Event", "issues"), b"{}", &FOLLOWED);
        assert_eq!(issue, nothing("`issues` events say nothing of a branch"));
        assert!(matches!(meaning(&HeaderMap::new(), b"{}", &FOLLOWED), Meaning::Nonsense(_)));
        let form = meaning(&event("X-GitHub-Event", "push"), b"payload=%7B%7D", &FOLLOWED);
        assert!(matches!(form, Meaning::Nonsense(words) if words.contains("application/json")));
    }

    #[test]
    fn a_repository_is_known_by_the_end_of_its_address() {
        for (url, name, expected) in [
            ("https://git.example.com/ml/serving.git", "ml/serving", true),
            ("https://git.example.com/gitlab/ml/serving", "ml/serving", true),
            ("git@git.example.com:ML/serving.git", "ml/Serving", true),
            ("ssh://git@git.example.com:2222/ml/serving", "ml/serving", true),
            ("https://git.example.com/xml/serving.git", "ml/serving", false),
            ("https://git.example.com/ml/serving-2.git", "ml/serving", false),
            ("/srv/mirror", "ml/serving", true),
        ] {
            assert_eq!(is_at(url, name), expected, "{url} {name}");
        }
    }

    proptest! {
        #[test]
        fn no_body_is_a_panic(body in proptest::collection::vec(any::<u8>(), 0..80)) {
            meaning(&event("X-GitHub-Event", "push"), &body, &FOLLOWED);
        }
    }
}
