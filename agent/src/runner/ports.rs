use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use denv_schema::MemberId;

/// The loopback ports that members' engines serve on. A member keeps its port while nobody else takes it.
#[derive(Debug, Default)]
pub(super) struct Ports {
    given: Mutex<BTreeMap<MemberId, u16>>,
}

/// The kernel gives free ports at random; more tries than this do not help.
const TRIES: usize = 64;

impl Ports {
    /// A member's port from before, as far as it is known.
    pub(super) fn remember(&self, member: &MemberId, port: u16) {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).insert(member.clone(), port);
    }

    /// A port that is free now and that no other member has.
    pub(super) fn give(&self, member: &MemberId) -> io::Result<u16> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = given.get(member).copied().filter(|port| bind(*port).is_ok()) {
            return Ok(port);
        }
        for _ in 0..TRIES {
            let port = bind(0)?.local_addr()?.port();
            if !given.values().any(|other| *other == port) {
                given.insert(member.clone(), port);
                return Ok(port);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port on 127.0.0.1"))
    }

    pub(super) fn release(&self, member: &MemberId) {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).remove(member);
    }
}

fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_kept_while_it_is_free_and_never_shared() {
        let ports = Ports::default();
        let (a, b) = (MemberId::from("a"), MemberId::from("b"));
        let first = ports.give(&a).unwrap();
        assert_eq!(ports.give(&a).unwrap(), first);
        assert_ne!(ports.give(&b).unwrap(), first);
        let _taken = bind(first).unwrap();
        assert_ne!(ports.give(&a).unwrap(), first);
    }
}
