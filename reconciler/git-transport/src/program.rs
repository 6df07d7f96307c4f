//! The two programs of Git that may answer: one hands out, the other takes in.

use git2::transport::Service;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    UploadPack,
    ReceivePack,
}

impl Program {
    pub(crate) fn of(service: Service) -> Self {
        match service {
            Service::UploadPackLs | Service::UploadPack => Program::UploadPack,
            Service::ReceivePackLs | Service::ReceivePack => Program::ReceivePack,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::UploadPack => "git-upload-pack",
            Program::ReceivePack => "git-receive-pack",
        }
    }

    /// What is done to the remote with it, for errors.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Program::UploadPack => "read",
            Program::ReceivePack => "push",
        }
    }

    /// Where HTTPS lists references, below the repository.
    pub(crate) fn list(self) -> String {
        format!("/info/refs?service={}", self.name())
    }

    /// The content type of one of `advertisement`, `request` and `result`.
    pub(crate) fn kind(self, of: &str) -> String {
        format!("application/x-{}-{of}", self.name())
    }
}

/// Whether it is the listing, with which a connection begins.
pub(crate) fn lists(service: Service) -> bool {
    matches!(service, Service::UploadPackLs | Service::ReceivePackLs)
}
