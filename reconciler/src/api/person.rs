//! Who asks, and what they may.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State as Extracted};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use denv_schema::manifest::{AccessSpec, Role};
use denv_schema::{Catalog, Digest, Name, StageId};
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;

use super::{Api, ApiError};
use crate::source::Author;

/// Who sent a request.
#[derive(Clone, Debug)]
pub(super) enum Person {
    /// Whoever has the control plane's own token: it may do everything.
    Admin,
    /// Somebody whom an Access manifest knows.
    Known { name: Name, access: Arc<AccessSpec> },
}

impl Person {
    /// For events: `admin`, `ada`.
    pub(super) fn name(&self) -> String {
        match self {
            Person::Admin => "admin".to_owned(),
            Person::Known { name, .. } => name.to_string(),
        }
    }

    /// For commits.
    pub(super) fn author(&self) -> Author {
        match self {
            Person::Admin => Author { name: "denv admin".to_owned(), email: "admin@denv.invalid".to_owned() },
            Person::Known { name, access } => Author {
                name: access.display_name.clone().unwrap_or_else(|| name.to_string()),
                email: access.email.clone(),
            },
        }
    }

    pub(super) fn access(&self) -> Option<Arc<AccessSpec>> {
        match self {
            Person::Admin => None,
            Person::Known { access, .. } => Some(Arc::clone(access)),
        }
    }

    fn may(&self, role: Role, stage: Option<&StageId>) -> bool {
        self.access().is_none_or(|access| access.allows(role, stage))
    }

    /// Whether what is of this stage is shown to them.
    pub(super) fn sees(&self, stage: &StageId) -> bool {
        self.may(Role::Viewer, Some(stage))
    }

    /// Refuses whoever has not this role in the stage.
    pub(super) fn must(&self, role: Role, stage: &StageId) -> Result<(), ApiError> {
        if self.may(role, Some(stage)) { Ok(()) } else { Err(self.denied(role, &format!("in {stage}"))) }
    }

    /// Refuses whoever has not this role in everything.
    pub(super) fn must_everywhere(&self, role: Role) -> Result<(), ApiError> {
        if self.may(role, None) { Ok(()) } else { Err(self.denied(role, "in everything (`\"*\"`)")) }
    }

    /// Refuses whoever has this role nowhere.
    pub(super) fn must_somewhere(&self, role: Role) -> Result<(), ApiError> {
        let may = self.access().is_none_or(|access| access.allows_anywhere(role));
        if may { Ok(()) } else { Err(self.denied(role, "in some stage")) }
    }

    fn denied(&self, role: Role, place: &str) -> ApiError {
        ApiError::forbidden(format!("`{}` would have to be {role} {place} for this", self.name()))
            .hint("who may do what stands in Access manifests; ask whoever may change them")
    }
}

/// Whose token it is. All are compared, in the same time for each, so that the time says nothing.
fn person(token: &str, admin: &Digest, catalog: Option<&Catalog>, now: Timestamp) -> Option<Person> {
    let given = Digest::of_bytes(token.as_bytes());
    let is_given = |hash: &Digest| bool::from(given.as_bytes().ct_eq(hash.as_bytes()));
    let mut found = is_given(admin).then_some(Person::Admin);
    for (name, access) in catalog.into_iter().flat_map(|catalog| &catalog.access) {
        for token in &access.tokens {
            let is_valid = token.expires.is_none_or(|expires| now < expires);
            if is_given(&token.hash) && is_valid {
                let access = Arc::new(access.clone());
                found.get_or_insert(Person::Known { name: name.clone(), access });
            }
        }
    }
    found
}

/// Lets nobody through whose token is nobody's, and says to what follows who it is.
pub(super) async fn identify(
    Extracted(api): Extracted<Arc<Api>>,
    mut request: Request,
    next: Next,
) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    let catalog = api.catalog.borrow().clone();
    let found = token.and_then(|token| person(token, &api.admin_token, catalog.as_deref(), Timestamp::now()));
    match found {
        Some(person) => {
            request.extensions_mut().insert(person);
            next.run(request).await
        }
        None => ApiError::of(StatusCode::UNAUTHORIZED, "this needs a token")
            .hint(
                "send `Authorization: Bearer …` with a token whose hash an Access manifest holds, or with the one from the \
                 reconciler's `admin-token` file",
            )
            .into_response(),
    }
}

impl FromRequestParts<Arc<Api>> for Person {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Result<Self, ApiError> {
        let person = parts.extensions.get::<Person>().cloned();
        person.ok_or_else(|| ApiError::forbidden("nobody was identified for this request"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_whose_it_is_while_it_is_valid() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let hash = |token: &str| Digest::of_bytes(token.as_bytes());
        let access: AccessSpec = serde_json::from_value(serde_json::json!({
            "displayName": "Ada", "email": "ada@example.com",
            "tokens": [{"hash": hash("lasting")}, {"hash": hash("ending"), "expires": "1970-01-01T00:01:40Z"}],
            "grants": [{"role": "operator", "stages": ["chat/*"]}],
        }))
        .unwrap();
        let mut catalog = Catalog::default();
        catalog.access.insert("ada".parse().unwrap(), access);
        let of = |token: &str, now| person(token, &hash("root"), Some(&catalog), at(now)).map(|it| it.name());
        assert_eq!(of("lasting", 1_000).as_deref(), Some("ada"));
        assert_eq!(of("ending", 99).as_deref(), Some("ada"));
        assert_eq!((of("ending", 100), of("other", 1), of("", 1)), (None, None, None));
        assert_eq!(of("root", 1).as_deref(), Some("admin"));
        let ada = person("lasting", &hash("root"), Some(&catalog), at(1)).unwrap();
        assert_eq!(ada.author(), Author { name: "Ada".to_owned(), email: "ada@example.com".to_owned() });
        let (prod, other) = ("chat/prod".parse().unwrap(), "code/prod".parse().unwrap());
        assert!(ada.must(Role::Operator, &prod).is_ok() && ada.sees(&prod));
        assert!(ada.must(Role::Publisher, &prod).is_err() && !ada.sees(&other));
        assert!(ada.must_somewhere(Role::Operator).is_ok() && ada.must_everywhere(Role::Viewer).is_err());
    }
}
