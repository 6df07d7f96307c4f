//! Providers, fleets, hosts and caches: that hosts are where they are said to be, and as many.

use std::collections::BTreeMap;

use super::Report;
use crate::Name;
use crate::catalog::Catalog;
use crate::catalog::faulty::Faulty;
use crate::diagnostic::counted;
use crate::manifest::{FleetSpec, HostSpec, ProviderKind, ProviderSpec, Purchase, WeightCacheSpec};

/// How many hosts are written, counted once.
#[derive(Default)]
pub(super) struct Hosts<'a> {
    of_fleet: BTreeMap<&'a Name, u32>,
    of_domain: BTreeMap<(&'a Name, &'a Name), u32>,
}

impl<'a> Hosts<'a> {
    pub(super) fn of(catalog: &'a Catalog) -> Self {
        let mut hosts = Hosts::default();
        for host in catalog.hosts.values() {
            *hosts.of_fleet.entry(&host.fleet).or_default() += 1;
            if let Some(domain) = &host.domain {
                *hosts.of_domain.entry((&host.fleet, domain)).or_default() += 1;
            }
        }
        hosts
    }
}

pub(super) fn provider(spec: &ProviderSpec, report: &mut Report<'_>) {
    let kind = spec.kind.as_str();
    if spec.kind == ProviderKind::Owned && spec.credentials.is_some() {
        let message = "hosts of your own need no signing in anywhere".to_owned();
        report.contradict("/spec/credentials", message, Some("leave `credentials` out"));
    }
    if !spec.kind.launches_hosts() && spec.account.is_some() {
        let message =
            format!("denv launches no hosts of the kind `{kind}`, so there is no account to do it in");
        report.contradict("/spec/account", message, Some("leave `account` out"));
    }
    if spec.kind != ProviderKind::Kubernetes && spec.namespace.is_some() {
        let message = format!("the kind `{kind}` has no namespaces");
        report.contradict(
            "/spec/namespace",
            message,
            Some("leave `namespace` out, or use `kind: kubernetes`"),
        );
    }
}

pub(super) fn fleet(
    name: &Name,
    spec: &FleetSpec,
    (catalog, hosts, faulty): (&Catalog, &Hosts<'_>, &Faulty),
    report: &mut Report<'_>,
) {
    let kind = catalog.providers.get(&spec.provider).map(|provider| provider.kind);
    if let Some(kind) = kind {
        purchase(spec, kind, report);
    }
    if let Some(cache) = spec.weight_cache.as_ref().and_then(|cache| catalog.weight_caches.get(cache))
        && cache.region != spec.region
    {
        let message =
            format!("the cache stands in region `{}`, and the fleet in `{}`", cache.region, spec.region);
        report.contradict("/spec/weightCache", message, Some("use a cache of the fleet's region"));
    }
    let (min, max) = (spec.hosts.min, spec.hosts.max);
    if min > max {
        report.contradict("/spec/hosts/min", format!("the least, {min}, is more than the most, {max}"), None);
        return;
    }
    let written = hosts.of_fleet.get(name).copied().unwrap_or(0);
    let say = if written == 1 { "says it is" } else { "say they are" };
    let hosts = format!("{} {say} of this fleet", counted(written as usize, "Host"));
    if written > max {
        let message = format!("{hosts}, and it has at most {max}");
        report.contradict("/spec/hosts/max", message, Some("raise `max`, or move hosts to another fleet"));
    } else if written < min && kind == Some(ProviderKind::Owned) && !faulty.may_have_host_of(name) {
        let message = format!("{hosts}, and it has at least {min}");
        report.contradict(
            "/spec/hosts/min",
            message,
            Some("write the missing Host manifests, or lower `min`"),
        );
    }
}

/// What only hosts have that denv launches, or only those that it does not.
fn purchase(spec: &FleetSpec, kind: ProviderKind, report: &mut Report<'_>) {
    let word = kind.as_str();
    if kind.launches_hosts() {
        if spec.purchase == Purchase::Owned {
            let message = format!("hosts of `{word}` are not owned");
            report.contradict("/spec/purchase", message, Some("write `reserved`, `on-demand` or `spot`"));
        }
        if spec.instance_type.is_none() {
            let message = format!("hosts of `{word}` are launched, and the fleet does not say as what");
            report.contradict("/spec", message, Some("write `instanceType`, in the provider's words"));
        }
        return;
    }
    if kind == ProviderKind::Owned && spec.purchase == Purchase::Spot {
        let message = "nobody takes hosts of your own away as `spot`".to_owned();
        report.contradict("/spec/purchase", message, Some("write `owned` or `reserved`"));
    }
    for (field, is_written) in
        [("instanceType", spec.instance_type.is_some()), ("image", spec.image.is_some())]
    {
        if is_written {
            let message =
                format!("denv launches no hosts of the kind `{word}`, so nothing is launched as this");
            report.contradict(&format!("/spec/{field}"), message, Some("leave it out"));
        }
    }
}

pub(super) fn host(spec: &HostSpec, (catalog, hosts): (&Catalog, &Hosts<'_>), report: &mut Report<'_>) {
    let Some(fleet) = catalog.fleets.get(&spec.fleet) else { return };
    let provider = catalog.providers.get(&fleet.provider);
    if let Some(provider) = provider.filter(|provider| provider.kind.launches_hosts()) {
        let message = format!("hosts of `{}` are launched and observed, not written", provider.kind.as_str());
        report.contradict(
            "/spec/fleet",
            message,
            Some("remove the Host, or look after it yourself: in a fleet whose provider is `kind: owned`"),
        );
    }
    if let Some(domain) = &spec.domain {
        let count = hosts.of_domain.get(&(&spec.fleet, domain)).copied().unwrap_or(0);
        if count > fleet.domain.hosts {
            let message = format!(
                "{count} hosts of fleet `{}` are in domain `{domain}`, and a domain there is {}",
                spec.fleet,
                counted(fleet.domain.hosts as usize, "host")
            );
            report.contradict(
                "/spec/domain",
                message,
                Some("correct it here, or in the fleet's `domain.hosts`"),
            );
        }
    }
}

pub(super) fn weight_cache(spec: &WeightCacheSpec, report: &mut Report<'_>) {
    let mut seen = std::collections::BTreeSet::new();
    for (i, source) in spec.sources.iter().enumerate() {
        if !seen.insert(&source.prefix) {
            let message = format!("`{}` is listed twice", source.prefix);
            report.contradict(&format!("/spec/sources/{i}/prefix"), message, None);
        }
    }
}
