use std::fmt;

use denv_schema::Name;
use rustls_pki_types::CertificateDer;

/// Who a certificate says its holder is. It is written as one DNS name, `name.role.tenant.denv.internal`, so that
/// ordinary TLS verification checks it whatever address the peer is reached at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    pub tenant: Name,
    pub role: Role,
    pub name: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    ControlPlane,
    Host,
    Gateway,
}

impl Role {
    const ALL: [Role; 3] = [Role::ControlPlane, Role::Host, Role::Gateway];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::ControlPlane => "control-plane",
            Role::Host => "host",
            Role::Gateway => "gateway",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Role {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Role::ALL.into_iter().find(|role| role.as_str() == text).ok_or(())
    }
}

/// The tenant of a control plane that has one. Everything is keyed by tenant, so more can come without a rebuild.
pub fn tenant() -> Name {
    "default".parse().expect("`default` is a name")
}

const SUFFIX: &str = ".denv.internal";

impl Identity {
    pub fn new(tenant: &Name, role: Role, name: &Name) -> Self {
        Identity { tenant: tenant.clone(), role, name: name.clone() }
    }

    /// The one control plane of a tenant, however many processes it is.
    pub fn control_plane(tenant: &Name) -> Self {
        let name = "reconciler".parse().expect("`reconciler` is a name");
        Identity { tenant: tenant.clone(), role: Role::ControlPlane, name }
    }

    pub fn dns_name(&self) -> String {
        format!("{}.{}.{}{SUFFIX}", self.name, self.role, self.tenant)
    }

    fn parse(dns_name: &str) -> Option<Self> {
        let mut parts = dns_name.strip_suffix(SUFFIX)?.rsplitn(3, '.');
        let (tenant, role, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Identity { tenant: tenant.parse().ok()?, role: role.parse().ok()?, name: name.parse().ok()? })
    }

    /// Reads the identity from a certificate that TLS has already verified.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let names = certificate.subject_alternative_name().ok()??;
        names.value.general_names.iter().find_map(|name| match name {
            x509_parser::extensions::GeneralName::DNSName(name) => Identity::parse(name),
            _ => None,
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.role, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_round_trip_as_dns_names() {
        let tenant: Name = "default".parse().unwrap();
        let host = Identity::new(&tenant, Role::Host, &"gpu-1.rack-2".parse().unwrap());
        assert_eq!(host.dns_name(), "gpu-1.rack-2.host.default.denv.internal");
        assert_eq!(Identity::parse(&host.dns_name()), Some(host));
        assert_eq!(Identity::parse("host.default.denv.internal"), None);
        assert_eq!(Identity::parse("x.host.default.example.com"), None);
    }
}
