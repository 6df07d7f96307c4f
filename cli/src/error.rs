//! What can keep a verb from doing what it should. Each becomes one message, one hint and one exit status.

use std::io;

use crate::client::{ClientError, ConnectionError};
use crate::comment::CommentError;
use crate::inputs::InputError;
use crate::key::KeyError;
use crate::origin::OriginError;
use crate::output::Exit;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Comment(#[from] CommentError),
    #[error(transparent)]
    Origin(#[from] OriginError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("there is no {kind} `{name}`")]
    NotFound { kind: String, name: String, hint: Option<String> },
    /// It is not done, and here is why.
    #[error("{message}")]
    Refused { message: String, hint: Option<String> },
    #[error("{message}")]
    Usage { message: String, hint: Option<String> },
    #[error("cannot write the output")]
    Output(#[source] io::Error),
}

impl Error {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Error::Client(error) => error.hint(),
            Error::NotFound { hint, .. } | Error::Usage { hint, .. } | Error::Refused { hint, .. } => {
                hint.clone()
            }
            Error::Key(error) => error.hint(),
            Error::Input(error) => error.hint(),
            Error::Origin(error) => error.hint(),
            Error::Comment(error) => error.hint(),
            Error::Connection(_) | Error::Output(_) => None,
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Error::NotFound { .. } | Error::Refused { .. } => Exit::No,
            Error::Client(error) if error.is_refusal() => Exit::No,
            _ => Exit::Trouble,
        }
    }
}
