//! What the kernel tells of processes.

use std::fs;
use std::io;

/// A process as `/proc/PID/stat` shows it.
pub(super) struct Stat {
    /// It ended, and its parent has not collected its status.
    pub(super) ended: bool,
    pub(super) group: i32,
    /// In ticks since the boot. With the pid and the boot it names one process for ever.
    pub(super) started_ticks: u64,
}

pub(super) fn stat(pid: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(text: &str) -> Option<Stat> {
    // The second field is the program's name in parentheses and may itself hold spaces and parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X" | "x");
    let group = fields.nth(1)?.parse().ok()?;
    let started_ticks = fields.nth(16)?.parse().ok()?;
    Some(Stat { ended, group, started_ticks })
}

/// This boot's name.
pub(super) fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

pub(super) fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The variables that a process began with; none when it is not ours to see.
pub(super) fn environment(pid: i32) -> Vec<(String, String)> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let entries = bytes.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
    entries.filter_map(|entry| entry.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_shift_fields() {
        let tail = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17";
        let text = format!("42 (a) b (c)) S 1 4242 {tail} 987654 rest");
        // Fields: state, ppid, pgrp, then 17 more before the start time would be one too many.
        let stat = parse(
            &text.replace(&format!("{tail} 987654"), "4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 987654"),
        );
        let stat = stat.unwrap();
        assert_eq!((stat.ended, stat.group, stat.started_ticks), (false, 4242, 987_654));
    }

    #[test]
    fn this_process_is_there() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(!stat(pid).unwrap().ended);
        assert!(pids().any(|other| other == pid));
        assert!(!boot().unwrap().is_empty());
    }
}
