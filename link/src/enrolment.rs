//! Getting a certificate with a join token, and a new one before it ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use denv_schema::Digest;
use denv_schema::wire::{JoinRequest, JoinResponse};
use jiff::Timestamp;
use rcgen::{CertificateParams, KeyPair};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::sync::watch;

use crate::authority::BACKDATED;
use crate::credentials::{Credentials, CredentialsError};
use crate::dial::{self, DialError};
use crate::identity::{self, Identity};
use crate::rpc::control_plane_client::ControlPlaneClient;
use crate::token::JoinToken;

/// The ALPN name of gRPC.
pub const GRPC: &[u8] = b"h2";
/// Between tries to renew while the control plane does not answer.
const RENEW_RETRY: Duration = Duration::from_secs(30);
/// A clock further off than this is called wrong.
pub const SKEW_TOLERANCE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the control plane refused: {0}")]
    Refused(String),
    #[error("the control plane did not answer")]
    Unavailable(#[source] tonic::Status),
    #[error("cannot make a key and certificate request")]
    Request(#[source] rcgen::Error),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("cannot use the certificate that the control plane sent")]
    Answer(#[source] rustls_pki_types::pem::Error),
    #[error(
        "the certificate in `{dir}` ended at {ended}; join again with a new token (`denv host token NAME`, `denv gateway token NAME`)"
    )]
    Expired { dir: PathBuf, ended: Timestamp },
}

/// Gets the first certificate. The control plane at `server` is known by the token's fingerprint alone.
pub async fn join(server: &str, token: &JoinToken, dir: &Path) -> Result<Credentials, EnrolError> {
    let verifier = Arc::new(Pinned { authority: token.authority });
    let mut config = ClientConfig::builder_with_provider(crate::provider())
        .with_safe_default_protocol_versions()
        .map_err(CredentialsError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![GRPC.to_vec()];
    let control_plane = Identity::control_plane(&identity::tenant());
    let channel = dial::channel(server, &control_plane, Arc::new(config)).await?;
    let (request, key) = request(&token.secret)?;
    let response = ControlPlaneClient::new(channel).join(request).await.map_err(refused)?.into_inner();
    keep(dir, &response, &key)
}

/// Gets the next certificate with the one that is about to end.
pub async fn renew(server: &str, credentials: &Credentials, dir: &Path) -> Result<Credentials, EnrolError> {
    let config = Arc::new(credentials.client_config(&[GRPC])?);
    let control_plane = Identity::control_plane(&credentials.identity()?.tenant);
    let channel = dial::channel(server, &control_plane, config).await?;
    let (request, key) = request("")?;
    let response = ControlPlaneClient::new(channel).renew(request).await.map_err(refused)?.into_inner();
    keep(dir, &response, &key)
}

/// The credentials in `dir`; without any, or with a token when they have ended, joins.
pub async fn load_or_join(
    server: &str,
    token: Option<&JoinToken>,
    dir: &Path,
) -> Result<Option<Credentials>, EnrolError> {
    let kept = Credentials::load(dir)?;
    let ended = match &kept {
        Some(credentials) => Some(credentials.validity()?.1).filter(|ended| *ended <= Timestamp::now()),
        None => None,
    };
    match (kept, ended, token) {
        (Some(credentials), None, _) => Ok(Some(credentials)),
        (_, _, Some(token)) => join(server, token, dir).await.map(Some),
        (_, Some(ended), None) => Err(EnrolError::Expired { dir: dir.to_owned(), ended }),
        (None, None, None) => Ok(None),
    }
}

/// Renews when two thirds of a certificate's life are over, for ever, and publishes each new one.
pub async fn keep_fresh(server: String, dir: PathBuf, credentials: watch::Sender<Arc<Credentials>>) {
    loop {
        let current = credentials.borrow().clone();
        let Ok((begins, ends)) = current.validity() else { return };
        let begins = begins + jiff::SignedDuration::try_from(BACKDATED).expect("an hour is in range");
        let life = ends.duration_since(begins);
        let renew_at = begins + life * 2 / 3;
        let wait = Duration::try_from(renew_at.duration_since(Timestamp::now())).unwrap_or_default();
        tokio::time::sleep(wait).await;
        match renew(&server, &current, &dir).await {
            Ok(fresh) => {
                tracing::info!("renewed the certificate");
                credentials.send_replace(Arc::new(fresh));
            }
            Err(error) => {
                // Kept in this statement: a reference held across the wait would bind the task to one thread.
                tracing::warn!(error = &error as &dyn std::error::Error, %ends, "cannot renew the certificate yet");
                tokio::time::sleep(RENEW_RETRY.min(Duration::try_from(life / 10).unwrap_or(RENEW_RETRY)))
                    .await;
            }
        }
    }
}

fn request(secret: &str) -> Result<(JoinRequest, KeyPair), EnrolError> {
    let key = KeyPair::generate().map_err(EnrolError::Request)?;
    let request = CertificateParams::default().serialize_request(&key).map_err(EnrolError::Request)?;
    let certificate_request = request.pem().map_err(EnrolError::Request)?;
    Ok((JoinRequest { secret: secret.to_owned(), certificate_request, clock: Timestamp::now() }, key))
}

fn keep(dir: &Path, response: &JoinResponse, key: &KeyPair) -> Result<Credentials, EnrolError> {
    let skew = Timestamp::now().duration_since(response.clock);
    if skew.unsigned_abs() > SKEW_TOLERANCE {
        tracing::warn!(
            skew_seconds = skew.as_secs(),
            "this machine's clock differs from the control plane's; set it (NTP), or certificates will be refused"
        );
    }
    let chain = format!("{}{}", response.certificate, response.authority);
    let key = key.serialize_pem();
    let credentials = Credentials::from_pem(&chain, &key).map_err(EnrolError::Answer)?;
    Credentials::save(dir, &chain, &key)?;
    Ok(credentials)
}

fn refused(status: tonic::Status) -> EnrolError {
    match status.code() {
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied | tonic::Code::InvalidArgument => {
            EnrolError::Refused(status.message().to_owned())
        }
        _ => EnrolError::Unavailable(status),
    }
}

/// Trusts the chain whose authority has the fingerprint of the join token.
#[derive(Debug)]
struct Pinned {
    authority: Digest,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = intermediates.iter().find(|certificate| Digest::of_bytes(certificate) == self.authority);
        let pinned = pinned.ok_or(rustls::CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(pinned.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crate::provider())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = crate::provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = crate::provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crate::provider().signature_verification_algorithms.supported_schemes()
    }
}
