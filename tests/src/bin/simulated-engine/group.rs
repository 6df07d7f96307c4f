//! What vLLM's processes of one pool do for each other: those on other hosts come to the leader, which serves once all
//! ranks are there, and none outlives the others.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::{Serve, say};

/// The ranks of this process among those of its pool, and where they meet.
pub(crate) struct Group {
    first: u32,
    count: u32,
    all: u32,
    meets_at: String,
}

/// How long one waits for its leader, and how often it tries.
const PATIENCE: Duration = Duration::from_secs(30);
const TRY_EVERY: Duration = Duration::from_millis(100);

impl Group {
    /// None: all of the pool is in this process.
    pub(crate) fn of(flags: &Serve) -> Option<Self> {
        let data = flags.data_parallel_size.unwrap_or(1);
        if let (Some(count), Some(address), Some(port)) =
            (flags.data_parallel_size_local, &flags.data_parallel_address, flags.data_parallel_rpc_port)
        {
            let first = flags.data_parallel_start_rank.unwrap_or(0);
            return Some(Group { first, count, all: data, meets_at: format!("{address}:{port}") });
        }
        let (address, port) = (flags.master_addr.as_ref()?, flags.master_port?);
        let (first, all) = (flags.node_rank?, flags.nnodes?);
        Some(Group { first, count: 1, all, meets_at: format!("{address}:{port}") })
    }

    /// Returns the ranks of others once all have come, each once.
    pub(crate) async fn lead(&self) -> io::Result<Vec<TcpStream>> {
        let listener = TcpListener::bind(&self.meets_at).await?;
        let mut there: Vec<u32> = (self.first..self.first + self.count).collect();
        let mut others = Vec::new();
        while there.len() < self.all as usize {
            let (stream, _) = listener.accept().await?;
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let ranks: Vec<u32> = line.split_whitespace().filter_map(|rank| rank.parse().ok()).collect();
            say(&format!("ranks {ranks:?} of {} have come", self.all));
            if ranks.iter().any(|rank| there.contains(rank) || *rank >= self.all) {
                return Err(io::Error::other(format!("ranks {ranks:?} are there already, or are none")));
            }
            there.extend(ranks);
            others.push(stream.into_inner());
        }
        Ok(others)
    }

    /// Comes to the leader, and returns when that is gone.
    pub(crate) async fn follow(&self) -> io::Result<()> {
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                match TcpStream::connect(&self.meets_at).await {
                    Ok(stream) => return stream,
                    Err(_) => tokio::time::sleep(TRY_EVERY).await,
                }
            }
        });
        let mut stream = found.await.map_err(|_| io::Error::other("the leader is not there"))?;
        let ranks: Vec<String> = (self.first..self.first + self.count).map(|rank| rank.to_string()).collect();
        stream.write_all(format!("{}\n", ranks.join(" ")).as_bytes()).await?;
        gone(stream).await;
        Ok(())
    }

    /// The first of its ranks, and how many it has.
    pub(crate) fn ranks(&self) -> (u32, u32) {
        (self.first, self.count)
    }
}

/// Returns when the other side has ended.
pub(crate) async fn gone(mut stream: TcpStream) {
    let mut nothing = [0; 1];
    while !matches!(stream.read(&mut nothing).await, Ok(0) | Err(_)) {}
}

/// Where other pools come for the KV cache: a port for each rank, counted from the first of all.
pub(crate) async fn hand_over(first: u32, count: u32) -> io::Result<Vec<TcpListener>> {
    let variable =
        |name: &str| std::env::var(name).map_err(|_| io::Error::other(format!("{name} is not set")));
    let host = variable("VLLM_NIXL_SIDE_CHANNEL_HOST")?;
    let base: u32 = variable("VLLM_NIXL_SIDE_CHANNEL_PORT")?.parse().map_err(io::Error::other)?;
    let mut listeners = Vec::new();
    for rank in first..first + count {
        listeners.push(TcpListener::bind(format!("{host}:{}", base + rank)).await?);
    }
    Ok(listeners)
}
