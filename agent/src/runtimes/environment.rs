use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};

use denv_schema::launch::Reference;

/// An engine's variables, with references resolved. `Debug` shows names alone.
#[derive(Default)]
pub struct Environment {
    pub variables: BTreeMap<String, String>,
    /// The names of those that are references.
    pub references: BTreeSet<String>,
    /// What references were resolved to: it may appear nowhere but in the environment of the engine, and of its container.
    pub secrets: Vec<String>,
}

/// Why a variable has no value: by its name and where the value should have come from, never by a value.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("the variable `{name}` of the engine has a reference that can't be followed; {rule}")]
    Reference { name: String, rule: &'static str },
    #[error(
        "the variable `{name}` of the engine is taken from denvd's `{from}`, which is not set (or is not text); set \
         it where denvd is started, and restart denvd"
    )]
    Variable { name: String, from: String },
    #[error(
        "the variable `{name}` of the engine is taken from the file `{path}`, which can't be read: {source}; put it \
         on this host, readable by denvd"
    )]
    Read { name: String, path: String, source: io::Error },
    #[error("the variable `{name}` of the engine is taken from the file `{path}`, which {fault}")]
    Content { name: String, path: String, fault: &'static str },
}

/// More is no secret but a file that was not meant; the kernel takes no longer variable than 128 KiB either.
const LARGEST_BYTES: u64 = 64 << 10;
/// Shorter ones are found in words that are not secret, and hide nothing.
const SHORTEST_HIDDEN: usize = 6;

impl Environment {
    /// Resolves what begins with `env:` or `file:`; `fill` completes the other values.
    pub fn resolve(
        variables: &BTreeMap<String, String>,
        fill: impl Fn(&str) -> String,
    ) -> Result<Self, EnvironmentError> {
        let mut environment = Environment::default();
        for (name, value) in variables {
            let value = match Reference::parse(value) {
                None => fill(value),
                Some(Err(rule)) => return Err(EnvironmentError::Reference { name: name.clone(), rule }),
                Some(Ok(reference)) => {
                    let value = follow(name, reference)?;
                    environment.references.insert(name.clone());
                    environment.secrets.extend(secret_lines(&value));
                    value
                }
            };
            environment.variables.insert(name.clone(), value);
        }
        Ok(environment)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// What must not be repeated of a value. A log is read by lines, so each line counts.
pub(super) fn secret_lines(value: &str) -> Vec<String> {
    value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_HIDDEN).map(str::to_owned).collect()
}

fn follow(name: &str, reference: Reference<'_>) -> Result<String, EnvironmentError> {
    match reference {
        Reference::Variable(from) => std::env::var(from)
            .map_err(|_| EnvironmentError::Variable { name: name.to_owned(), from: from.to_owned() }),
        Reference::File(path) => {
            let content =
                |fault| EnvironmentError::Content { name: name.to_owned(), path: path.to_owned(), fault };
            let bytes = read(path).map_err(|source| EnvironmentError::Read {
                name: name.to_owned(),
                path: path.to_owned(),
                source,
            })?;
            let bytes = bytes.ok_or_else(|| content("is no plain file of at most 64 KiB"))?;
            let text = String::from_utf8(bytes).map_err(|_| content("is not text"))?;
            // Editors end a file with a line break that is no part of a token.
            let text = text.strip_suffix('\n').map_or(&*text, |text| text.strip_suffix('\r').unwrap_or(text));
            match text {
                "" => Err(content("is empty")),
                _ if text.contains('\0') => Err(content("is not text")),
                _ => Ok(text.to_owned()),
            }
        }
    }
}

/// None: not a plain file, or too large. A pipe would let denvd wait for ever.
fn read(path: &str) -> io::Result<Option<Vec<u8>>> {
    if !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST_BYTES + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= LARGEST_BYTES).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(value: &str) -> Result<Environment, EnvironmentError> {
        let variables = BTreeMap::from([("HF_TOKEN".to_owned(), value.to_owned())]);
        Environment::resolve(&variables, |text| text.replace("${port}", "81"))
    }

    #[test]
    fn references_are_followed_and_other_values_filled() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "PLANTED ${port}\r\n").unwrap();
        let environment = resolve(&format!("file:{}", file.display())).unwrap();
        assert_eq!(environment.variables["HF_TOKEN"], "PLANTED ${port}", "a secret is not a template");
        assert_eq!(environment.secrets, ["PLANTED ${port}"]);
        assert_eq!(format!("{environment:?}"), r#"{"HF_TOKEN"}"#);

        assert!(environment.references.contains("HF_TOKEN"));
        let environment = resolve("env:CARGO_PKG_NAME").unwrap();
        assert_eq!(environment.variables["HF_TOKEN"], "denv-agent");

        let environment = resolve("on ${port}").unwrap();
        assert_eq!(environment.variables["HF_TOKEN"], "on 81");
        assert_eq!(environment.secrets, Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_followed_names_the_variable_and_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| format!("file:{}", dir.path().join(name).display());
        std::fs::write(dir.path().join("empty"), "\n").unwrap();
        std::fs::write(dir.path().join("binary"), [b'P', 0xff]).unwrap();
        std::fs::write(dir.path().join("zero"), "P\0").unwrap();
        std::fs::write(dir.path().join("large"), "PLANTED".repeat(10_000)).unwrap();
        for (value, expected) in [
            ("env:NO_SUCH_VARIABLE".to_owned(), "denvd's `NO_SUCH_VARIABLE`, which is not set"),
            ("env:DENV_JOIN_TOKEN".to_owned(), "denvd's own settings (`DENV_…`) are not for engines"),
            ("file:relative".to_owned(), "write `file:` and an absolute path on the host"),
            (at("missing"), "missing`, which can't be read: No such file"),
            (at("empty"), "empty`, which is empty"),
            (at("binary"), "binary`, which is not text"),
            (at("zero"), "zero`, which is not text"),
            (at("large"), "large`, which is no plain file of at most 64 KiB"),
            (format!("file:{}", dir.path().display()), "which is no plain file"),
        ] {
            let error = resolve(&value).unwrap_err();
            let shown = error.to_string();
            assert!(shown.starts_with("the variable `HF_TOKEN`") && shown.contains(expected), "{shown}");
            assert!(!format!("{error:?}").contains("PLANTED"), "{error:?}");
        }
    }
}
