//! A `Worker` of `dwell-engine` in a process of its own, which can be killed: `dwell-lab
//! schedule-worker`. It writes what it receives to a file, and ends when its input ends.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use dwell::clock;
use dwell::config::{Durability, Redis, RedisMode};
use dwell_engine::worker::{Context, Outcome};
use dwell_engine::{Client, Job, Worker};
use dwell_testkit::environment::Result;
use tokio::process::Child;

use super::QUEUE;
use crate::checker::Receipt;
use crate::own_process::{input_end, spawn};

/// Handlers at a time.
const CONCURRENCY: usize = 256;
/// The longest wait for a Redis that fails over.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval between two tries.
const CONNECT_INTERVAL: Duration = Duration::from_millis(100);
/// The longest end of a process.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The options of the process.
#[derive(Debug, Clone, clap::Args)]
pub struct Work {
    /// The URL of Redis, or those of its sentinels
    #[arg(long, required = true)]
    pub redis: Vec<String>,
    /// The URLs are those of sentinels
    #[arg(long)]
    pub sentinels: bool,
    /// The file of what was received
    #[arg(long)]
    pub receipts: PathBuf,
}

impl Work {
    /// The settings of this Redis. Behind sentinels a write waits for the replica.
    pub(super) fn settings(&self) -> Redis {
        let mut settings = Redis::new("");
        settings.urls.clone_from(&self.redis);
        if self.sentinels {
            (settings.mode, settings.durability) = (RedisMode::Sentinel, Durability::Replica);
        }
        settings
    }
}

/// Works until the input ends.
///
/// # Errors
/// Redis or the file is not available.
pub async fn work(options: &Work) -> Result<()> {
    let (settings, began) = (options.settings(), clock::now());
    let client = loop {
        match Client::connect(&settings, &[]).await {
            Ok(client) => break client,
            Err(error) if began.elapsed() > CONNECT_TIMEOUT => return Err(error.into()),
            Err(_) => clock::sleep(CONNECT_INTERVAL).await,
        }
    };
    let file = Arc::new(File::options().create(true).append(true).open(&options.receipts)?);
    let stop = input_end();
    let handler = move |job: Job, context: Context| {
        std::future::ready(note(&file, &job, &context).map(|()| Outcome::Finish))
    };
    Worker::new(client).queue(QUEUE, handler).concurrency(CONCURRENCY).run(stop).await?;
    Ok(())
}

/// Writes the receipt before the job is finished: one write, which a kill does not tear.
fn note(mut file: &File, job: &Job, context: &Context) -> io::Result<()> {
    let number = job.headers.get("delayed-occurrence").and_then(|number| number.plain());
    let receipt = Receipt {
        id: context.id().as_str().to_owned(),
        number: number.and_then(|number| number.parse().ok()).unwrap_or_default(),
        attempt: context.attempt(),
        at_us: clock::wall_us(),
    };
    let mut line = serde_json::to_vec(&receipt)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// The receipts in a file; none if there is no file.
pub(super) fn receipts(file: &Path) -> Result<Vec<Receipt>> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let read = |line: &str| serde_json::from_str::<Receipt>(line).map_err(io::Error::from);
    Ok(text.lines().map(read).collect::<io::Result<Vec<_>>>()?)
}

/// The process, seen by its parent.
pub(super) struct Process {
    work: Work,
    child: Option<Child>,
}

impl Process {
    /// A process that is not started.
    pub(super) fn new(work: Work) -> Process {
        Process { work, child: None }
    }

    pub(super) fn start(&mut self) -> io::Result<()> {
        let Work { redis, sentinels, receipts } = &self.work;
        let receipts = format!("--receipts={}", receipts.display());
        let mut arguments = vec!["schedule-worker".to_owned(), receipts];
        arguments.extend(redis.iter().map(|url| format!("--redis={url}")));
        arguments.extend(sentinels.then(|| "--sentinels".to_owned()));
        self.child = Some(spawn(&arguments, Stdio::null())?);
        Ok(())
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    /// SIGKILL.
    pub(super) async fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(status) = child.try_wait()? {
            return Err(format!("a worker ended by itself with {status}").into());
        }
        Ok(child.kill().await?)
    }

    /// Ends the input, and waits for the end of the process.
    pub(super) async fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        drop(child.stdin.take());
        let ended = clock::timeout(STOP_TIMEOUT, child.wait()).await;
        let status = ended.ok_or("a worker did not end when its input ended")??;
        if status.success() { Ok(()) } else { Err(format!("a worker ended with {status}").into()) }
    }
}
