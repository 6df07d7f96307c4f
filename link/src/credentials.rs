//! A certificate with its key, in memory and on disk, and the TLS configurations made of it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::Resumption;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::identity::Identity;

/// A certificate chain (the leaf, then the authority) and the leaf's private key.
pub struct Credentials {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: Arc<PrivateKeyDer<'static>>,
}

#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("cannot read or write `{path}`")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("`{path}` is not PEM as denv writes it; remove it and join again")]
    Pem { path: PathBuf, source: rustls_pki_types::pem::Error },
    #[error("the certificate carries no denv identity; join again")]
    NoIdentity,
    #[error("the certificate and its key cannot be used")]
    Tls(#[from] rustls::Error),
    #[error("the authority's certificate cannot be used")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

/// Chain and key are one file, so that one can't be replaced without the other.
const FILE: &str = "credentials.pem";

impl Credentials {
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, rustls_pki_types::pem::Error> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        Ok(Credentials { chain, key: Arc::new(key) })
    }

    /// The credentials kept in `dir`, if there are any.
    pub fn load(dir: &Path) -> Result<Option<Self>, CredentialsError> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CredentialsError::Io { path, source }),
        };
        Credentials::from_pem(&text, &text).map(Some).map_err(|source| CredentialsError::Pem { path, source })
    }

    /// Keeps a chain and key in `dir`, readable by the owner alone. They are replaced in one step, so a crash leaves
    /// the old pair or the new one.
    pub fn save(dir: &Path, chain: &str, key: &str) -> Result<(), CredentialsError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| CredentialsError::Io { path, source }
        };
        fs::create_dir_all(dir).map_err(at(dir))?;
        let (path, partial) = (dir.join(FILE), dir.join(format!("{FILE}.partial")));
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&partial).map_err(at(&partial))?;
        file.write_all(format!("{}\n{key}", chain.trim_end()).as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(at(&partial))?;
        fs::rename(&partial, &path).map_err(at(&path))?;
        // What a renamed file is called is the folder's to keep.
        fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(at(dir))
    }

    /// Who the certificate says its holder is.
    pub fn identity(&self) -> Result<Identity, CredentialsError> {
        self.chain.first().and_then(Identity::of_certificate).ok_or(CredentialsError::NoIdentity)
    }

    /// When the certificate begins and ends.
    pub fn validity(&self) -> Result<(Timestamp, Timestamp), CredentialsError> {
        self.chain.first().and_then(validity).ok_or(CredentialsError::NoIdentity)
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, CredentialsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.chain.iter().skip(1) {
            roots.add(certificate.clone())?;
        }
        Ok(Arc::new(roots))
    }

    /// For dialling out: presents this certificate and trusts its authority alone. `protocols` are ALPN names.
    pub fn client_config(&self, protocols: &[&[u8]]) -> Result<ClientConfig, CredentialsError> {
        let mut config = ClientConfig::builder_with_provider(crate::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        config.resumption = Resumption::disabled();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }

    /// For listening: presents this certificate, and takes only peers whose certificate its authority signed.
    /// `anonymous` also lets in those without a certificate, who may do nothing but join.
    pub fn server_config(
        &self,
        protocols: &[&[u8]],
        anonymous: bool,
    ) -> Result<ServerConfig, CredentialsError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, crate::provider());
        let verifier = if anonymous { verifier.allow_unauthenticated() } else { verifier }.build()?;
        let mut config = ServerConfig::builder_with_provider(crate::provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        // Each connection shows its certificate: one that is resumed would outlive it. Peers that all come back do so because
        // this process forgot them, and then tickets would be made for nothing.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("identity", &self.identity().ok()).finish_non_exhaustive()
    }
}

/// When a certificate begins and ends.
pub(crate) fn validity(certificate: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let at = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    Some((at(certificate.validity().not_before)?, at(certificate.validity().not_after)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authority;

    #[test]
    fn credentials_survive_the_disk_and_are_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        assert!(Credentials::load(dir.path()).unwrap().is_none());
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let authority = Authority::generate(now).unwrap();
        Credentials::save(dir.path(), authority.certificate_pem(), &authority.key_pem()).unwrap();
        assert!(Credentials::load(dir.path()).unwrap().is_some());
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
