//! What is asked of each forge, as values. Pure.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::{Address, Kind, State, Status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
}

/// A request without the token that goes with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub method: Method,
    pub url: String,
    pub body: Option<Value>,
}

/// Comments on a page.
pub const PAGE: usize = 100;

/// Sets what is said of a commit.
pub fn set_status(address: &Address, commit: &str, status: &Status) -> Request {
    let Address { kind, .. } = address;
    let state = match (kind, status.state) {
        (_, State::Pending) => "pending",
        (_, State::Success) => "success",
        (Kind::GitLab, State::Failure) => "failed",
        (Kind::GitHub | Kind::Gitea, State::Failure) => "failure",
    };
    let longest = match kind {
        Kind::GitHub => 140,
        Kind::GitLab | Kind::Gitea => 255,
    };
    let description = shortened(&status.description, longest);
    let body = match kind {
        Kind::GitHub | Kind::Gitea => {
            json!({ "state": state, "context": status.context, "description": description })
        }
        Kind::GitLab => json!({ "state": state, "name": status.context, "description": description }),
    };
    let url = format!("{}/statuses/{}", repository(address), encoded(commit));
    Request { method: Method::Post, url, body: Some(body) }
}

/// The comments of a pull request, the oldest first.
pub fn comments(address: &Address, pull_request: u64, page: usize) -> Request {
    let place = comments_place(address, pull_request);
    let url = match address.kind {
        Kind::GitHub => format!("{place}?per_page={PAGE}&page={page}"),
        Kind::GitLab => format!("{place}?per_page={PAGE}&page={page}&sort=asc&order_by=created_at"),
        // It gives all at once.
        Kind::Gitea => place,
    };
    Request { method: Method::Get, url, body: None }
}

/// Whether a page of this many comments may be followed by another.
pub fn is_followed(kind: Kind, on_page: usize) -> bool {
    kind != Kind::Gitea && on_page >= PAGE
}

pub fn create_comment(address: &Address, pull_request: u64, text: &str) -> Request {
    let url = comments_place(address, pull_request);
    Request { method: Method::Post, url, body: Some(json!({ "body": text })) }
}

pub fn update_comment(address: &Address, pull_request: u64, comment: u64, text: &str) -> Request {
    let (method, url) = match address.kind {
        Kind::GitHub | Kind::Gitea => {
            (Method::Patch, format!("{}/issues/comments/{comment}", repository(address)))
        }
        Kind::GitLab => (Method::Put, format!("{}/{comment}", comments_place(address, pull_request))),
    };
    Request { method, url, body: Some(json!({ "body": text })) }
}

/// The header that carries the token.
pub fn authorization(kind: Kind, token: &str) -> (&'static str, String) {
    match kind {
        Kind::GitHub | Kind::GitLab => ("authorization", format!("Bearer {token}")),
        Kind::Gitea => ("authorization", format!("token {token}")),
    }
}

/// A comment as it is written: what marks it as the one of this name is seen by nobody, and it fits.
pub fn marked(kind: Kind, name: &str, text: &str) -> String {
    let longest = kind.longest_comment();
    let cut = match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}\n\n… cut, as the forge takes no more", &text[..end]),
        None => text.to_owned(),
    };
    format!("{}\n{cut}", marker(name))
}

/// Whether a comment is the one of this name. It must begin with the mark: whoever quotes one has made another.
pub fn is_marked(name: &str, text: &str) -> bool {
    text.starts_with(&marker(name))
}

/// A name can't end the mark early.
fn marker(name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_alphanumeric() || "/_.:".contains(c) { c } else { '_' }).collect();
    format!("<!-- denv {name} -->")
}

fn repository(address: &Address) -> String {
    let Address { kind, api, repository } = address;
    match kind {
        Kind::GitHub | Kind::Gitea => {
            let parts: Vec<String> = repository.split('/').map(encoded).collect();
            format!("{api}/repos/{}", parts.join("/"))
        }
        Kind::GitLab => format!("{api}/projects/{}", encoded(repository)),
    }
}

fn comments_place(address: &Address, pull_request: u64) -> String {
    let repository = repository(address);
    match address.kind {
        Kind::GitHub | Kind::Gitea => format!("{repository}/issues/{pull_request}/comments"),
        Kind::GitLab => format!("{repository}/merge_requests/{pull_request}/notes"),
    }
}

fn encoded(text: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, KEPT).to_string()
}

/// One line of at most so many characters.
fn shortened(text: &str, longest: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(longest) {
        Some(_) => line.chars().take(longest - 1).chain(['…']).collect(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(kind: Kind) -> Address {
        Address { kind, api: "https://api.example.com".to_owned(), repository: "ml/serving".to_owned() }
    }

    #[test]
    fn each_forge_is_asked_in_its_own_words() {
        let status = Status {
            state: State::Failure,
            context: "denv/main".to_owned(),
            description: "refused:\n".to_owned() + &"x".repeat(300),
        };
        let set = |kind| set_status(&address(kind), "abc", &status);
        let github = set(Kind::GitHub);
        assert_eq!(github.url, "https://api.example.com/repos/ml/serving/statuses/abc");
        let body = github.body.unwrap();
        assert_eq!((body["state"].as_str(), body["context"].as_str()), (Some("failure"), Some("denv/main")));
        assert_eq!(body["description"].as_str().unwrap().chars().count(), 140);
        assert!(body["description"].as_str().unwrap().starts_with("refused: x"));
        let gitlab = set(Kind::GitLab);
        assert_eq!(gitlab.url, "https://api.example.com/projects/ml%2Fserving/statuses/abc");
        let body = gitlab.body.unwrap();
        assert_eq!((body["state"].as_str(), body["name"].as_str()), (Some("failed"), Some("denv/main")));
        assert_eq!(body["description"].as_str().unwrap().chars().count(), 255);
        let update = |kind| update_comment(&address(kind), 7, 9, "text");
        assert_eq!(update(Kind::GitHub).url, "https://api.example.com/repos/ml/serving/issues/comments/9");
        assert_eq!(update(Kind::GitHub).method, Method::Patch);
        let gitlab = update(Kind::GitLab);
        assert_eq!(gitlab.url, "https://api.example.com/projects/ml%2Fserving/merge_requests/7/notes/9");
        assert_eq!(gitlab.method, Method::Put);
        assert!(
            comments(&address(Kind::GitHub), 7, 2).url.ends_with("/issues/7/comments?per_page=100&page=2")
        );
    }

    #[test]
    fn a_comment_is_known_by_its_mark_alone() {
        let text = marked(Kind::GitHub, "plan main", "# Plan");
        assert_eq!(text, "<!-- denv plan_main -->\n# Plan");
        assert!(is_marked("plan main", &text) && !is_marked("plan", &text));
        assert!(!is_marked("plan main", &format!("> {text}")));
        assert_eq!(marker("a --> b"), "<!-- denv a_____b -->");
        let long = marked(Kind::GitHub, "plan", &"ä".repeat(70_000));
        assert!(long.chars().count() < 65_536 && long.ends_with("takes no more"));
    }
}
