//! What each request and each token costs beside the sockets: reading a request, choosing a unit, following a
//! stream. Also with long prompts, for the cost of a byte must not grow with their number.

use std::collections::VecDeque;
use std::hint::black_box;

use bytes::Bytes;
use denv_gateway::answer::{Events, usage_of};
use denv_gateway::kv_index::{KvIndex, Prefix, ROOM};
use denv_gateway::request::ChatRequest;
use denv_gateway::routing::{Candidate, pick};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};

fn main() {
    divan::main();
}

fn request(prompt_bytes: usize) -> Bytes {
    let prompt = "the quick brown fox \\n".repeat(prompt_bytes / 22);
    format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"model":"small","stream":true}}"#).into()
}

#[divan::bench(args = [1 << 10, 32 << 10, 1 << 20])]
fn parse_request(bencher: Bencher<'_, '_>, prompt_bytes: usize) {
    let body = request(prompt_bytes);
    bencher.counter(BytesCount::new(body.len())).bench(|| ChatRequest::parse(black_box(body.clone())));
}

#[divan::bench(args = [1 << 10, 1 << 20])]
fn rewrite_request(bencher: Bencher<'_, '_>, prompt_bytes: usize) {
    let body = request(prompt_bytes);
    let chat = ChatRequest::parse(body.clone()).expect("the benchmark's request is well-formed");
    bencher.counter(BytesCount::new(body.len())).bench(|| chat.body_for(black_box("another-name")));
}

#[divan::bench]
fn read_usage(bencher: Bencher<'_, '_>) {
    let answer = br#"{"id":"chatcmpl-9247e9ceee98b377","object":"chat.completion","created":1795952271,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"hello there, this is what a short answer looks like"},"finish_reason":"stop"}],"usage":{"prompt_tokens":225,"total_tokens":241,"completion_tokens":16,"prompt_tokens_details":{"cached_tokens":192}}}"#;
    bencher.counter(BytesCount::new(answer.len())).bench(|| usage_of(black_box(answer)));
}

/// One token's event after the other, each in a chunk of its own, as engines send them.
#[divan::bench]
fn follow_stream(bencher: Bencher<'_, '_>) {
    const TOKENS: usize = 1000;
    let event = Bytes::from_static(
        b"data: {\"id\":\"chatcmpl-81a3f09bdfbec606\",\"object\":\"chat.completion.chunk\",\"created\":1795952274,\
\"model\":\"tiny\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ba\"},\"logprobs\":null,\
\"finish_reason\":null,\"token_ids\":null}]}\n\n",
    );
    bencher.counter(ItemsCount::new(TOKENS)).bench(|| {
        let (mut events, mut out) = (Events::new(true), VecDeque::new());
        for _ in 0..TOKENS {
            let _ = events.feed(black_box(event.clone()), &mut out);
            out.clear();
        }
    });
}

#[divan::bench(args = [2, 64, 512])]
fn pick_unit(bencher: Bencher<'_, '_>, units: usize) {
    let loads: Vec<u32> = (0..units as u32).map(|index| index * 7 % 13).collect();
    let candidate = |index: usize| Candidate::Ready { inflight: black_box(&loads)[index], to_read: 0 };
    bencher.bench(|| pick(units, candidate, 256, black_box(3)));
}

/// What a prompt is known by, for routing.
#[divan::bench(args = [1 << 10, 32 << 10, 1 << 20])]
fn read_prefix(bencher: Bencher<'_, '_>, prompt_bytes: usize) {
    let chat = ChatRequest::parse(request(prompt_bytes)).expect("the benchmark's request is well-formed");
    bencher.counter(BytesCount::new(prompt_bytes)).bench(|| black_box(&chat).prefix());
}

/// Who has a prompt of 32 KiB, where all units have its first half and one has it all.
#[divan::bench(args = [2, 64, 512])]
fn look_up_prefix(bencher: Bencher<'_, '_>, units: usize) {
    let (half, whole) = (vec![b'x'; 16 << 10], vec![b'x'; 32 << 10]);
    let (half, whole) = (Prefix::new([], &half), Prefix::new([], &whole));
    let mut index = KvIndex::new(ROOM);
    let holders: Vec<_> = (0..units).map(|_| index.join()).collect();
    for holder in &holders {
        index.hold(*holder, &half);
    }
    index.hold(holders[0], &whole);
    bencher.bench(|| black_box(&index).held(black_box(&whole)));
}
