//! The built-in certificate authority. The control plane holds it; nobody else can.

use std::time::Duration;

use denv_schema::Digest;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::credentials::Credentials;
use crate::identity::Identity;

/// Certificates begin this long before they are signed, so that a clock that is a little behind does not refuse
/// a fresh one.
pub(crate) const BACKDATED: Duration = Duration::from_secs(3600);
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("cannot make or read the certificate authority")]
    Authority(#[source] rcgen::Error),
    #[error("the certificate request cannot be read; it must be a PKCS #10 request in PEM")]
    Request(#[source] rcgen::Error),
    #[error("cannot sign a certificate")]
    Sign(#[source] rcgen::Error),
}

impl Authority {
    pub fn generate(now: Timestamp) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Authority)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = distinguished_name("denv authority");
        set_validity(&mut params, now, AUTHORITY_LIFETIME);
        let certificate = params.self_signed(&key).map_err(AuthorityError::Authority)?;
        Ok(Authority { certificate_pem: certificate.pem(), issuer: Issuer::new(params, key) })
    }

    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(key).map_err(AuthorityError::Authority)?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(AuthorityError::Authority)?;
        Ok(Authority { issuer, certificate_pem: certificate.to_owned() })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The private key, for the control plane's own keeping.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// What join tokens carry.
    pub fn fingerprint(&self) -> Digest {
        let der = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())
            .expect("the authority's own certificate is PEM");
        Digest::of_bytes(&der)
    }

    /// Signs the public key of `request` for `identity`; whatever else the request says is ignored.
    pub fn sign(
        &self,
        request: &str,
        identity: &Identity,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<String, AuthorityError> {
        let mut request =
            CertificateSigningRequestParams::from_pem(request).map_err(AuthorityError::Request)?;
        request.params = leaf(identity, now, lifetime);
        Ok(request.signed_by(&self.issuer).map_err(AuthorityError::Sign)?.pem())
    }

    /// A new key and certificate for `identity`: for the control plane itself, and for tests.
    pub fn issue(
        &self,
        identity: &Identity,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Credentials, AuthorityError> {
        self.issue_for(identity, &[], now, lifetime)
    }

    /// The same for one that goes by other identities too: the control plane of several tenants.
    pub fn issue_for(
        &self,
        identity: &Identity,
        also: &[Identity],
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Credentials, AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Sign)?;
        let mut params = leaf(identity, now, lifetime);
        for identity in also {
            let name = identity.dns_name().try_into().expect("identities are ASCII DNS names");
            params.subject_alt_names.push(rcgen::SanType::DnsName(name));
        }
        let certificate = params.signed_by(&key, &self.issuer).map_err(AuthorityError::Sign)?;
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("rcgen writes valid PEM");
        Ok(Credentials {
            chain: vec![der(&certificate.pem()), der(&self.certificate_pem)],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("rcgen writes valid PKCS #8").into(),
        })
    }
}

fn leaf(identity: &Identity, now: Timestamp, lifetime: Duration) -> CertificateParams {
    let mut params =
        CertificateParams::new(vec![identity.dns_name()]).expect("identities are ASCII DNS names");
    params.distinguished_name = distinguished_name(&identity.to_string());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Hosts are clients of the control plane and servers of their ingress; the control plane is a server.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(SerialNumber::from(now.as_nanosecond().unsigned_abs() as u64));
    set_validity(&mut params, now, lifetime);
    params
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, lifetime: Duration) {
    let at = |timestamp: Timestamp| {
        // rcgen speaks `time`; seconds since the epoch are common ground.
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        epoch + Duration::from_secs(timestamp.as_second().max(0).unsigned_abs())
    };
    params.not_before = at(now - jiff::SignedDuration::try_from(BACKDATED).expect("an hour is in range"));
    params.not_after = at(now + jiff::SignedDuration::try_from(lifetime).expect("a lifetime is in range"));
}

fn distinguished_name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "denv");
    name.push(DnType::CommonName, common_name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Role;

    #[test]
    fn certificates_say_what_the_authority_says_not_what_the_request_says() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let authority = Authority::generate(now).unwrap();
        let again = Authority::from_pem(authority.certificate_pem(), &authority.key_pem()).unwrap();
        assert_eq!(again.fingerprint(), authority.fingerprint());

        let tenant = "default".parse().unwrap();
        let asked = Identity::new(&tenant, Role::Host, &"evil".parse().unwrap());
        let granted = Identity::new(&tenant, Role::Host, &"good".parse().unwrap());
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::new(vec![asked.dns_name()])
            .unwrap()
            .serialize_request(&key)
            .unwrap()
            .pem()
            .unwrap();
        let pem = again.sign(&request, &granted, now, Duration::from_secs(60)).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert_eq!(Identity::of_certificate(&der), Some(granted));
        assert_eq!(
            crate::credentials::validity(&der).unwrap().1,
            Timestamp::from_second(1_800_000_060).unwrap()
        );
    }
}
