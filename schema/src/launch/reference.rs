/// Where denvd finds the value of a variable that is not written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    /// A variable of denvd's own environment.
    Variable(&'a str),
    /// A file on the host, by its absolute path.
    File(&'a str),
}

impl<'a> Reference<'a> {
    /// What a variable's value refers to. None: it is the value. Otherwise, what a reference must look like.
    pub fn parse(value: &'a str) -> Option<Result<Self, &'static str>> {
        if let Some(name) = value.strip_prefix("env:") {
            let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            return Some(match name {
                _ if !is_name => Err("write `env:` and the name of a variable of denvd"),
                // They hold denvd's own join token, among others.
                _ if name.starts_with("DENV_") => Err("denvd's own settings (`DENV_…`) are not for engines"),
                _ => Ok(Reference::Variable(name)),
            });
        }
        let path = value.strip_prefix("file:")?;
        let is_absolute = path.starts_with('/') && !path.starts_with("//") && path.len() > 1;
        Some(if is_absolute && !path.contains('\0') {
            Ok(Reference::File(path))
        } else {
            Err("write `file:` and an absolute path on the host, for example `file:/etc/denv/hf-token`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_told_from_values() {
        assert_eq!(Reference::parse("plain"), None);
        assert_eq!(Reference::parse("environment"), None);
        assert_eq!(Reference::parse("env:HF_TOKEN"), Some(Ok(Reference::Variable("HF_TOKEN"))));
        assert_eq!(Reference::parse("file:/run/token"), Some(Ok(Reference::File("/run/token"))));
        for bad in
            ["env:", "env:A B", "env:DENV_JOIN_TOKEN", "file:", "file:token", "file:/", "file://host/x"]
        {
            assert!(matches!(Reference::parse(bad), Some(Err(_))), "{bad}");
        }
    }
}
