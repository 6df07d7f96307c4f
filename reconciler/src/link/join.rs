//! Certificates for those with a join token, and new ones for those whose certificate is about to end.

use denv_link::{Identity, JoinToken, Peer, Role};
use denv_schema::api::Level;
use denv_schema::wire::{JoinRequest, JoinResponse};
use jiff::Timestamp;
use tonic::{Request, Status};

use super::{Link, Links, skew, unavailable};
use crate::store::Event;

pub(super) async fn join(links: &Links, request: Request<JoinRequest>) -> Result<JoinResponse, Status> {
    let (request, now) = (request.into_inner(), Timestamp::now());
    let hash = JoinToken::secret_hash(&request.secret);
    let mut granted = None;
    // A token's secret is random, so it is of one tenant at most; which one, only the store knows.
    for link in links.0.values() {
        let grant = link.store.use_token(hash, now).await.map_err(|error| unavailable(&error))?;
        granted = granted.or(grant.map(|grant| (link, grant)));
    }
    let Some((link, grant)) = granted else {
        return Err(Status::unauthenticated(
            "this join token is unknown, was used already, or is too old; get a new one with `denv host token NAME` or \
             `denv gateway token NAME`",
        ));
    };
    let identity = Identity::new(&link.tenant, grant.role, &grant.name);
    let response = sign(link, &request, &identity, now)?;
    let late = skew(request.clock, now).map_or(String::new(), |skew| format!("; {skew}"));
    let event = Event {
        at: now,
        subject: format!("{} {}", grant.role, grant.name),
        level: if late.is_empty() { Level::Normal } else { Level::Warning },
        message: format!("joined{late}"),
    };
    link.store.note(&event).await.map_err(|error| unavailable(&error))?;
    Ok(response)
}

pub(super) fn renew(links: &Links, request: &Request<JoinRequest>) -> Result<JoinResponse, Status> {
    let peer = request.extensions().get::<Peer>().and_then(|peer| peer.identity.clone());
    let identity = peer.filter(|identity| identity.role != Role::ControlPlane);
    let link = identity.as_ref().and_then(|identity| links.0.get(&identity.tenant));
    match (link, identity) {
        (Some(link), Some(identity)) => sign(link, request.get_ref(), &identity, Timestamp::now()),
        _ => Err(Status::unauthenticated("only a host or gateway with a certificate can renew it")),
    }
}

fn sign(
    link: &Link,
    request: &JoinRequest,
    identity: &Identity,
    now: Timestamp,
) -> Result<JoinResponse, Status> {
    let certificate = link
        .authority
        .sign(&request.certificate_request, identity, now, link.lifetime)
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    Ok(JoinResponse { certificate, authority: link.authority.certificate_pem().to_owned(), clock: now })
}
