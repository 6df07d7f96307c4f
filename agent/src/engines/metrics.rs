use denv_schema::measures::{EngineMeasures, Lookups};
use denv_schema::quantity::Share;
use denv_schema::wire::Generation;

/// What was found so far; ranks of one engine are added up.
#[derive(Default)]
struct Found {
    running: Option<f64>,
    queued: Option<f64>,
    usage: Vec<f64>,
    /// Tokens that were looked up and found.
    hits: Option<f64>,
    /// Tokens that were looked up, found or not.
    asked: Option<f64>,
    /// Tokens that were looked up and not found.
    misses: Option<f64>,
}

/// Reads what an engine tells in Prometheus's text format, by the names that vLLM, SGLang and llama.cpp give. What it
/// does not tell stays unknown.
pub(super) fn read(text: &str, generation: Generation) -> EngineMeasures {
    let mut found = Found::default();
    text.lines().filter_map(sample).for_each(|(name, value)| found.take(name, value));
    let count = |sum: f64| sum.clamp(0.0, f64::from(u32::MAX)) as u32;
    let usage = found.usage.iter().sum::<f64>() / found.usage.len() as f64;
    let asked = found.asked.or_else(|| Some(found.misses? + found.hits?));
    EngineMeasures {
        generation,
        running: found.running.map(count),
        queued: found.queued.map(count),
        cache_usage: Share::from_ratio(usage),
        // Counters of tokens are far below where a float loses them.
        cache_lookups: asked
            .zip(found.hits)
            .map(|(asked, hits)| Lookups { asked: asked as u64, found: hits as u64 }),
    }
}

impl Found {
    fn take(&mut self, name: &str, value: f64) {
        let sum = match name {
            "vllm:num_requests_running" | "sglang:num_running_reqs" | "llamacpp:requests_processing" => {
                &mut self.running
            }
            "vllm:num_requests_waiting" | "sglang:num_queue_reqs" | "llamacpp:requests_deferred" => {
                &mut self.queued
            }
            "vllm:prefix_cache_queries_total" => &mut self.asked,
            "vllm:prefix_cache_hits_total" | "llamacpp:prompt_tokens_cached_total" => &mut self.hits,
            "llamacpp:prompt_tokens_total" => &mut self.misses,
            "vllm:kv_cache_usage_perc" | "sglang:token_usage" => return self.usage.push(value),
            _ => return,
        };
        *sum = Some(sum.unwrap_or(0.0) + value);
    }
}

/// The name and value of a line that is a sample.
fn sample(line: &str) -> Option<(&str, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    if name.starts_with('#') {
        return None;
    }
    // A label's value may hold a brace, and nothing after the labels does.
    let values = rest.rsplit_once('}').map_or(rest, |(_, values)| values);
    let value: f64 = values.split_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some((name, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vllms_ranks_are_added_up() {
        let text = r#"# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="ti}ny"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny"} 4.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.5
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 1.11e+02
vllm:prefix_cache_queries_created{engine="0",model_name="tiny"} 1.7959522510667267e+09
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 64.0
"#;
        let told = EngineMeasures {
            generation: 2,
            running: Some(7),
            queued: Some(2),
            cache_usage: Share::from_ratio(0.375),
            cache_lookups: Some(Lookups { asked: 111, found: 64 }),
        };
        assert_eq!(read(text, 2), told);
    }

    #[test]
    fn llama_cpp_counts_what_it_found_apart() {
        let text = "llamacpp:prompt_tokens_total 106\nllamacpp:prompt_tokens_cached_total 139\n\
                    llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n";
        let told = read(text, 1);
        assert_eq!(told.cache_lookups, Some(Lookups { asked: 245, found: 139 }));
        assert_eq!((told.running, told.queued, told.cache_usage), (Some(1), Some(0), None));
    }

    #[test]
    fn sglang_tells_its_queue_and_usage() {
        let text = "sglang:num_running_reqs{model_name=\"m\"} 5.0\nsglang:num_queue_reqs{model_name=\"m\"} 9.0\n\
                    sglang:token_usage{model_name=\"m\"} 0.9\nsglang:cache_hit_rate{model_name=\"m\"} 0.3\n";
        let told = read(text, 1);
        assert_eq!((told.running, told.queued, told.cache_usage), (Some(5), Some(9), Share::from_ratio(0.9)));
        assert_eq!(told.cache_lookups, None);
    }

    proptest! {
        #[test]
        fn nothing_that_an_engine_says_breaks_it(text in "\\PC{0,200}") {
            prop_assert_eq!(read(&text, 1), EngineMeasures { generation: 1, ..EngineMeasures::default() });
        }
    }
}
