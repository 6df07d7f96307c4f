use proptest::prelude::*;

use super::*;

/// As vLLM 0.32 sent it.
const VLLM: &str = concat!(
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}"#,
    "\n\n",
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"ba"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#,
    "\n\n",
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"ba"},"logprobs":null,"finish_reason":"length","stop_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":25,"total_tokens":29,"completion_tokens":4},"system_fingerprint":"vllm-0.32.0"}"#,
    "\n\n",
    "data: [DONE]\n\n",
);
/// As llama.cpp sent it, but with the line ends of the standard's strict readers and a comment.
const LLAMA: &str = concat!(
    ": ping\r\n\r\n",
    r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"model":"tiny"}"#,
    "\r\n\r\n",
    r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"reasoning_content":"hm"}}],"model":"tiny"}"#,
    "\r\n\r\n",
    r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"a \"usage\": {} \"finish_reason\":\"x\""}}]}"#,
    "\r\n\r\n",
    r#"data: {"choices":[{"finish_reason": "stop","index":0,"delta":{}}],"model":"tiny","usage":null}"#,
    "\r\n\r\n",
    r#"data: {"choices": [ ],"usage":{"completion_tokens":3,"prompt_tokens":62,"prompt_tokens_details":{"cached_tokens":61}},"timings":{}}"#,
    "\r\n\r\n",
    "data: [DONE]\r\n\r\n",
);

struct Seen {
    text: String,
    whole: bool,
    done: bool,
    usage: Option<TokenCounts>,
    estimate: TokenCounts,
}

fn read(chunks: &[&[u8]], hide_usage: bool) -> Seen {
    let (mut events, mut out) = (Events::new(hide_usage), VecDeque::new());
    for chunk in chunks {
        events.feed(Bytes::copy_from_slice(chunk), &mut out).unwrap();
    }
    let whole = events.end(&mut out);
    let text = String::from_utf8(out.iter().flatten().copied().collect()).unwrap();
    Seen { text, whole, done: events.done(), usage: events.usage(), estimate: events.estimated_usage(9) }
}

fn without_usage_event(stream: &str, separator: &str) -> String {
    stream.split_inclusive(separator).filter(|event| !event.contains("completion_tokens")).collect()
}

#[test]
fn a_stream_passes_byte_for_byte_but_for_the_usage_that_was_not_asked_for() {
    for (stream, separator) in [(VLLM, "\n\n"), (LLAMA, "\r\n\r\n")] {
        let seen = read(&[stream.as_bytes()], false);
        assert_eq!(seen.text, stream);
        assert!(seen.whole && seen.done);
        let seen = read(&[stream.as_bytes()], true);
        assert_eq!(seen.text, without_usage_event(stream, separator));
    }
    let wanted = TokenCounts { input: 1, cached_input: 61, output: 3, reasoning: 0 };
    assert_eq!(read(&[LLAMA.as_bytes()], true).usage, Some(wanted));
}

#[test]
fn chunks_are_counted_for_want_of_usage() {
    let wanted = TokenCounts { input: 9, cached_input: 0, output: 2, reasoning: 1 };
    assert_eq!(read(&[LLAMA.as_bytes()], true).estimate, wanted);
    let wanted = TokenCounts { input: 9, cached_input: 0, output: 2, reasoning: 0 };
    assert_eq!(read(&[VLLM.as_bytes()], true).estimate, wanted);
}

#[test]
fn a_torn_stream_is_not_taken_for_a_whole_one() {
    let cut = VLLM.find("\"length\"").unwrap();
    let seen = read(&[&VLLM.as_bytes()[..cut]], true);
    assert!(!seen.whole);
    assert_eq!(seen.text.matches("data:").count(), 2, "the torn event stays here");

    let done_only = "data: {\"choices\":[{\"finish_reason\":null}]}\n\ndata: [DONE]\n\n";
    let seen = read(&[done_only.as_bytes()], true);
    assert!(!seen.whole && seen.done);
    assert!(!seen.text.contains("[DONE]"));
    let seen = read(&[done_only.trim_end().as_bytes()], true);
    assert!(!seen.whole && !seen.text.contains("[DONE]"));
}

#[test]
fn a_last_event_without_its_empty_line_is_an_event() {
    let seen = read(&[VLLM.trim_end().as_bytes()], false);
    assert!(seen.whole && seen.done);
    assert_eq!(seen.text, VLLM.trim_end());
}

#[test]
fn an_endless_event_is_refused() {
    let (mut events, mut out) = (Events::new(true), VecDeque::new());
    let megabyte = Bytes::from(vec![b'x'; 1 << 20]);
    let refused = (0..32).any(|_| events.feed(megabyte.clone(), &mut out).is_err());
    assert!(refused && out.is_empty());
}

proptest! {
    #[test]
    fn how_a_stream_is_split_changes_nothing(
        llama: bool, hide_usage: bool, length in 0usize..2000, cuts in prop::collection::vec(0usize..2000, 0..40),
    ) {
        let stream = if llama { LLAMA } else { VLLM }.as_bytes();
        let stream = &stream[..stream.len().saturating_sub(length.saturating_sub(1000))];
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.push(0);
        cuts.push(stream.len());
        cuts.sort_unstable();
        let chunks: Vec<_> = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        let (split, whole) = (read(&chunks, hide_usage), read(&[stream], hide_usage));
        prop_assert_eq!(split.text, whole.text);
        prop_assert_eq!(split.usage, whole.usage);
        prop_assert_eq!(split.estimate, whole.estimate);
        prop_assert_eq!((split.whole, split.done), (whole.whole, whole.done));
    }
}
