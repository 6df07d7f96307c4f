//! Whether a revision is accepted: as a whole, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use denv_schema::{Catalog, Diagnostics, Digest, Name};

use super::SourceConfig;
use super::mirror::{Mirror, MirrorError};
use crate::store::Revision;

pub(super) enum Judged {
    Accepted { revision: Revision, catalog: Arc<Catalog> },
    Refused { revision: Revision },
}

pub(super) fn judge(
    mirror: &Mirror,
    config: &SourceConfig,
    head: &str,
    accepted: Option<&str>,
    deployed: &BTreeMap<Name, Digest>,
) -> Result<Judged, MirrorError> {
    let view = mirror.revision(head)?;
    let refuse = |reason: String, diagnostics| {
        let revision = Revision { view: view.clone(), reason, diagnostics };
        Ok(Judged::Refused { revision })
    };
    if let Some(accepted) = accepted
        && !mirror.descends(head, accepted)?
    {
        let reason = format!(
            "history was rewritten: it does not come after {}, which is in force; push a commit on top of that one",
            accepted.get(..10).unwrap_or(accepted)
        );
        return refuse(reason, Diagnostics::default());
    }
    let (files, mut unreadable) = mirror.files(head, &config.folder)?;
    if files.is_empty() && unreadable.is_empty() {
        let place = if config.folder.is_empty() {
            "the repository".to_owned()
        } else {
            format!("`{}`", config.folder)
        };
        // Nothing at all is far likelier a slip than the wish to stop everything.
        let reason = format!("no manifests (`.yaml`, `.yml`) in {place}; nothing is removed for that");
        return refuse(reason, Diagnostics::default());
    }
    let found = match Catalog::from_files_after(&files, deployed) {
        Ok(catalog) if unreadable.is_empty() => {
            let revision = Revision { view, reason: String::new(), diagnostics: Diagnostics::default() };
            return Ok(Judged::Accepted { revision, catalog: Arc::new(catalog) });
        }
        Ok(_) => unreadable,
        Err(found) => {
            found.iter().for_each(|diagnostic| unreadable.push(diagnostic.clone()));
            unreadable
        }
    };
    let faults = if found.len() == 1 { "1 fault".to_owned() } else { format!("{} faults", found.len()) };
    let first = found.iter().next().map(ToString::to_string).unwrap_or_default();
    let first = first.lines().next().unwrap_or_default().to_owned();
    refuse(format!("{faults} in its manifests, the first: {first}"), found)
}
