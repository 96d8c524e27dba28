//! `dwell ls` on a terminal and in a pipe: width, length and repeated output.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use dwell::job::Due;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::fixture::program;
use super::ls::Listed;
use crate::store::fixture::request;
use crate::support::wait_until;

const T: i64 = 4_000_000_000_000;
const LONG: &str = "order-2026-000001234-0123456789abcdef0123456789abcdef-注文-二千二十六年";

/// Opens a terminal of this size: the side that shows, and the side that a program writes to.
fn terminal(columns: u16, rows: u16) -> (OwnedFd, File) {
    let shows = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&shows).unwrap();
    unlockpt(&shows).unwrap();
    tcsetwinsize(&shows, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 })
        .unwrap();
    let path = ptsname(&shows, Vec::new()).unwrap().into_string().unwrap();
    let writes = File::options().read(true).write(true).open(path).unwrap();
    (shows, writes)
}

fn ls(listed: &Listed, more: &[&str], columns: Option<&str>, out: Stdio) -> Child {
    let mut command = Command::new(program());
    command.args(["-c", &listed.config, "ls"]).args(more).env_clear().env("TZ", "UTC");
    if let Some(columns) = columns {
        command.env("COLUMNS", columns);
    }
    command.stdout(out).stderr(Stdio::piped()).spawn().unwrap()
}

async fn interrupt(mut child: Child) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    let status = wait_until("its end", async || child.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(0));
}

async fn put(listed: &Listed, id: &str, after: i64) {
    listed.fixture.put(request(id, after.unsigned_abs() + 1, Due::At(T + after))).await;
}

/// Returns the columns that a line takes on a terminal: the characters of the test's ids beyond
/// ASCII take two, an ellipsis one.
fn columns(line: &str) -> usize {
    line.chars().map(|c| if c.is_ascii() || c == '…' { 1 } else { 2 }).sum()
}

#[tokio::test]
async fn a_list_is_as_wide_as_columns_says_and_in_a_pipe_as_wide_as_it_gets() {
    let listed = Listed::new().await;
    put(&listed, LONG, 1).await;
    put(&listed, "short", 2).await;
    let whole = listed.run(&["ls"]).out;
    assert!(whole.contains(LONG) && whole.contains("LAST ERROR"), "{whole}");
    for width in [20, 40, 60, 80, 120, 200] {
        let child = ls(&listed, &[], Some(&width.to_string()), Stdio::piped());
        let shown = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(shown.lines().count(), 3, "a line each: {shown}");
        assert!(shown.lines().all(|line| columns(line) <= width), "{width}: {shown}");
        assert!(
            width < 40 || shown.contains("order-2026") && shown.contains("short"),
            "{width}: {shown}"
        );
    }
}

#[tokio::test]
async fn on_a_terminal_watch_draws_over_what_it_showed_within_its_rows() {
    let listed = Listed::new().await;
    for n in 0..20 {
        put(&listed, &format!("job-{n:02}"), n).await;
    }
    let (shows, writes) = terminal(60, 10);
    let child = ls(&listed, &["--watch"], None, writes.into());
    let mut shows = File::from(shows);
    let (mut shown, mut buffer) = (String::new(), [0; 4096]);
    while shown.matches("\u{1b}[H").count() < 3 {
        let count = shows.read(&mut buffer).unwrap();
        shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    interrupt(child).await;
    let page = shown.split("\u{1b}[H").nth(1).unwrap();
    let (lines, end) = page.split_at(page.find("\u{1b}[J").unwrap());
    let lines: Vec<&str> =
        lines.lines().map(|line| line.strip_suffix("\u{1b}[K").unwrap()).collect();
    assert_eq!((lines.len(), lines[8], end), (9, "13 more lines", "\u{1b}[J"));
    assert!(lines.iter().all(|line| line.len() <= 60) && lines[1].contains("job-00"), "{lines:?}");
}

#[tokio::test]
async fn in_a_pipe_watch_writes_a_page_each_time() {
    let listed = Listed::new().await;
    put(&listed, "a", 1).await;
    let mut child = ls(&listed, &["--watch"], None, Stdio::piped());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let page: Vec<String> = lines.by_ref().take(3).collect();
    assert!(
        page[0].starts_with("DUE") && page[1].contains("  a  ") && page[2].is_empty(),
        "{page:?}"
    );
    put(&listed, "b", 2).await;
    assert!(lines.by_ref().take(100).any(|line| line.contains("  b  ")));
    interrupt(child).await;
}
