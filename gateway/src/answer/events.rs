use std::collections::VecDeque;
use std::ops::Range;
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use denv_schema::wire::TokenCounts;
use memchr::memmem::Finder;

use super::usage::usage_of_chunk;

/// Follows a stream of server-sent events without changing it: finds where events end, and looks closer only at
/// the few that end an answer.
///
/// Events are given on when they are whole, so that what the client must not see is never half sent, and a torn
/// event of an engine that died never reaches it. As engines write whole events, this holds nothing back.
#[derive(Debug)]
pub struct Events {
    /// Drop the chunk that is there for usage alone.
    hide_usage: bool,
    /// The beginning of an event whose end has not come.
    held: BytesMut,
    /// How much of `held` is known to be no event's end.
    scanned: usize,
    usage: Option<TokenCounts>,
    finished: bool,
    done: bool,
    content_chunks: u64,
    reasoning_chunks: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("an event of the engine's stream is longer than {MAX_EVENT_BYTES} bytes")]
pub struct TooLong;

/// Far above any chunk; it bounds what a broken engine can make the gateway hold.
const MAX_EVENT_BYTES: usize = 16 << 20;

// In JSON a quote inside a string is escaped, so these are found in keys (or whole strings), never in text that a
// model wrote.
static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""usage""#));
static FINISH_REASON: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""finish_reason""#));
static DELTA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""delta""#));
static CONTENT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""content""#));
static REASONING: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""reasoning"#));
static TOOL_CALLS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""tool_calls""#));

enum Line {
    Other,
    UsageOnly,
    Done,
}

impl Events {
    pub fn new(hide_usage: bool) -> Self {
        Events {
            hide_usage,
            held: BytesMut::new(),
            scanned: 0,
            usage: None,
            finished: false,
            done: false,
            content_chunks: 0,
            reasoning_chunks: 0,
        }
    }

    /// Takes what the engine sent and puts what the client may see into `out`.
    pub fn feed(&mut self, chunk: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), TooLong> {
        let bytes = if self.held.is_empty() {
            chunk
        } else {
            self.held.extend_from_slice(&chunk);
            if event_end(&self.held, self.scanned).is_none() {
                return self.hold();
            }
            std::mem::take(&mut self.held).freeze()
        };
        let rest = self.scan(&bytes, out);
        self.held.extend_from_slice(&bytes[rest..]);
        self.scanned = 0;
        self.hold()
    }

    /// Notes how far the held bytes need not be searched again.
    fn hold(&mut self) -> Result<(), TooLong> {
        if self.held.len() > MAX_EVENT_BYTES {
            return Err(TooLong);
        }
        let line = memchr::memrchr(b'\n', &self.held).map_or(0, |newline| newline + 1);
        self.scanned = self.scanned.max(line);
        Ok(())
    }

    /// The engine's stream is over. Whether the answer came to its end; if so, what is left of it goes to `out`.
    pub fn end(&mut self, out: &mut VecDeque<Bytes>) -> bool {
        let rest = std::mem::take(&mut self.held).freeze();
        // The last event may lack the empty line that ends it, and its last line may lack its end.
        let mut hidden = rest.is_empty();
        for line in rest.split(|byte| *byte == b'\n') {
            match self.look(line) {
                Line::Other => {}
                Line::UsageOnly => hidden |= self.hide_usage,
                Line::Done => self.done = true,
            }
        }
        // What was not asked for must not leak out as the torn half of an event.
        if self.finished && !hidden && (self.done || !self.hide_usage) {
            out.push_back(rest);
        }
        self.finished
    }

    /// `[DONE]` was seen. It is given on only if the answer had come to its end.
    pub fn done(&self) -> bool {
        self.done
    }

    /// A choice said why it ended, without which a stream is torn.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// What the engine counted, once it has said so.
    pub fn usage(&self) -> Option<TokenCounts> {
        self.usage
    }

    /// How much was generated so far: engines send about one token a chunk.
    pub fn generated(&self) -> u64 {
        self.content_chunks + self.reasoning_chunks
    }

    /// A count of what was generated for when the engine said nothing: engines send about one token a chunk.
    pub fn estimated_usage(&self, input: u64) -> TokenCounts {
        let output = self.generated();
        TokenCounts { input, cached_input: 0, output, reasoning: self.reasoning_chunks }
    }

    /// Gives on all whole events of `bytes`. Returns where the rest begins.
    fn scan(&mut self, bytes: &Bytes, out: &mut VecDeque<Bytes>) -> usize {
        let (mut given, mut event) = (0, 0);
        while let Some(end) = event_end(bytes, event) {
            let mut usage_only = false;
            for line in bytes[event..end].split(|byte| *byte == b'\n') {
                match self.look(line) {
                    Line::Other => {}
                    Line::UsageOnly => usage_only = true,
                    Line::Done => self.done = true,
                }
            }
            if self.done && !self.finished {
                // The client must not take a torn answer for a whole one.
                give(bytes, given..event, out);
                return bytes.len();
            }
            if usage_only && self.hide_usage {
                give(bytes, given..event, out);
                given = end;
            }
            event = end;
        }
        give(bytes, given..event, out);
        event
    }

    fn look(&mut self, line: &[u8]) -> Line {
        let Some(data) = line.strip_prefix(b"data:") else { return Line::Other };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            return Line::Done;
        }
        self.finished = self.finished || says_why_it_ended(data);
        if let Some(delta) = DELTA.find(data) {
            self.count(&data[delta..]);
        }
        if USAGE
            .find(data)
            .is_some_and(|at| !value_after(data, at + br#""usage""#.len()).starts_with(b"null"))
            && let Some((usage, usage_only)) = usage_of_chunk(data)
        {
            self.usage = Some(usage);
            if usage_only {
                return Line::UsageOnly;
            }
        }
        Line::Other
    }

    fn count(&mut self, delta: &[u8]) {
        let filled = |finder: &Finder<'_>| {
            let value = finder.find(delta).map(|at| {
                let key = at + 1 + memchr::memchr(b'"', &delta[at + 1..]).unwrap_or(0);
                value_after(delta, key + 1)
            });
            value.is_some_and(|value| {
                matches!(value, [b'"', next, ..] if *next != b'"')
                    || matches!(value, [b'[', next, ..] if *next != b']')
            })
        };
        if filled(&CONTENT) || filled(&TOOL_CALLS) {
            self.content_chunks += 1;
        } else if filled(&REASONING) {
            self.reasoning_chunks += 1;
        }
    }
}

fn give(bytes: &Bytes, range: Range<usize>, out: &mut VecDeque<Bytes>) {
    if !range.is_empty() {
        out.push_back(bytes.slice(range));
    }
}

/// Where the event ends that begins, or has a line that begins, at `line`: after an empty line.
fn event_end(bytes: &[u8], line: usize) -> Option<usize> {
    let (from, mut line) = (line, line);
    for newline in memchr::memchr_iter(b'\n', &bytes[from..]) {
        let newline = from + newline;
        if matches!(&bytes[line..newline], b"" | b"\r") {
            return Some(newline + 1);
        }
        line = newline + 1;
    }
    None
}

/// Whether any choice's `finish_reason` is a text.
fn says_why_it_ended(data: &[u8]) -> bool {
    let after = FINISH_REASON.find_iter(data).map(|at| value_after(data, at + br#""finish_reason""#.len()));
    after.into_iter().any(|value| value.starts_with(b"\""))
}

/// What follows a key's colon.
fn value_after(data: &[u8], key_end: usize) -> &[u8] {
    let rest = data.get(key_end..).unwrap_or_default().trim_ascii_start();
    rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start).unwrap_or_default()
}

#[cfg(test)]
mod tests;
