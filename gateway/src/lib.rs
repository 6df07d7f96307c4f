//! The gateway: serves endpoints to API keys, routes to units, meters.
//!
//! It owns the way of a request from a client to an engine and back. It refuses to know Git, plans and hosts'
//! insides: it serves by the configuration and the units that the control plane sent last, and reaches engines
//! through the ingress of the host they run on.
//!
//! Floors, each importing only downwards; neighbours never import each other:
//!
//! `main` > [`process`] > `api` | `control_plane` > `proxy` | `last_known` > `admission` | `units` | `meter` >
//! [`routing`] > [`request`] | [`answer`] > `metrics` | [`kv_index`]
//!
//! What clients may rely on, and what is not obvious:
//!
//! - Bodies pass byte for byte, but for three things: the model's name in a request, where the engine knows the
//!   model by another one; the wish for usage, which is put into streaming requests without it, and the chunk that
//!   it adds to the answer is taken out; and, to units of two pools, what their engine needs to hand over from one to
//!   the other. The `model` field of an answer is what the engine wrote.
//! - A unit of two pools is one thing: in rotation while both are well, and a request that one of them fails is run
//!   again, prefill and all, on another unit. A client that leaves is forgotten by both.
//! - A request that no client has seen a byte of is run again on another unit when its unit fails, whether the
//!   engine had begun or not: a chat completion changes nothing. At most three engines begin one request. After the
//!   first byte it never is: the stream ends with an error event, `"code":"retryable"`, and without `[DONE]`.
//! - A prompt goes to the unit where it costs least: what is in flight there, and what would have to be read because its KV cache
//!   likely lacks it. What a unit has is known by what it was given (a salted or otherwise templated prompt is another); all of
//!   that is forgotten the moment it fails, restarts or is replaced. `denv_gateway_expected_cached_tokens_total` beside
//!   `denv_gateway_tokens_total{kind="cached-input"}` tells whether that holds.
//! - A unit in rotation is asked for its health every two seconds, the whole way to its engine, and leaves rotation
//!   when it fails. When its host can't be reached time and again, what it was asked and has not begun is run again
//!   elsewhere, and a stream that has paused for ten seconds ends with the same error event.
//! - Usage is the engine's own count. Where it is missing, since the client left or the engine failed, the prompt is
//!   estimated at four bytes of its messages a token, and the output at one token a chunk; an answer that was not
//!   streamed has none then.

mod admission;
pub mod answer;
mod api;
mod control_plane;
pub mod kv_index;
mod last_known;
mod meter;
mod metrics;
pub mod process;
mod proxy;
pub mod request;
pub mod routing;
mod tally;
mod units;

pub use meter::{Disk, Files, Segment};
