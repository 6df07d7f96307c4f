//! How a peer that is gone without a word is noticed. The system asks whether the other machine is there, which costs next to
//! nothing however many connections are at rest. Whether the process there still does anything only the process can say, so it
//! is asked too, less often.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A machine that has said nothing for this long is gone: a pulled cable, a partition. While something that was sent is not
/// confirmed the system asks nothing, and then it is the process that does not answer.
const GONE: Duration = Duration::from_secs(10);
/// The system asks after half of that, and then this often.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBES: u32 = 5;

/// Who dialled asks this often, and the other side knows by that.
pub const DIALLER_ASKS: Duration = Duration::from_secs(14);
pub const DIALLER_WAITS: Duration = Duration::from_secs(6);
/// Who listens asks only a peer that has not asked: of thousands at rest, there is one question and one answer, not two.
pub const LISTENER_ASKS: Duration = Duration::from_secs(16);
pub const LISTENER_WAITS: Duration = Duration::from_secs(4);

/// Has the system watch over a connection.
pub(crate) fn watch(stream: &TcpStream) {
    let probes = TcpKeepalive::new().with_time(GONE / 2).with_interval(PROBE_INTERVAL).with_retries(PROBES);
    // Where the system can't, the process is asked all the same.
    let _ = SockRef::from(stream).set_tcp_keepalive(&probes);
}
