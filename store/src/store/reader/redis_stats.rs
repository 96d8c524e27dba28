//! The resources that Redis uses: CPU time and memory by INFO. For measurements.

use futures_util::future::try_join_all;
use redis::{Pipeline, Value};

use crate::store::client::{RedisClient, info_field};
use crate::store::error::StoreError;
use crate::store::reader::Reader;

/// The resources of all masters together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RedisStats {
    /// CPU time of the main threads so far, µs; of all threads if the server does not report them
    /// separately (Redis 6.2 and older).
    pub cpu_us: f64,
    /// Memory of data, bytes, without buffers of clients and of the append-only file.
    pub data_bytes: u64,
    /// A snapshot or a new append-only file is being written.
    pub is_saving: bool,
}

impl Reader {
    /// The resources used so far.
    pub async fn vitals(&self) -> Result<RedisStats, StoreError> {
        let masters = self.namespace.link.masters().await?;
        let all = try_join_all(masters.iter().map(vitals_of)).await?;
        Ok(all.into_iter().fold(RedisStats::default(), |sum, one| RedisStats {
            cpu_us: sum.cpu_us + one.cpu_us,
            data_bytes: sum.data_bytes + one.data_bytes,
            is_saving: sum.is_saving || one.is_saving,
        }))
    }

    /// The number of jobs in `due`, by the cheapest query, so that polling it does not disturb a
    /// measurement.
    pub async fn waiting(&self) -> Result<u64, StoreError> {
        let mut waiting = 0;
        for (bucket, active) in (0..).zip(self.namespace.active_queues().await?) {
            let mut pipeline = Pipeline::new();
            for set in &self.namespace.sets_with(&active) {
                pipeline.cmd("ZCARD").arg(self.namespace.keys.due(bucket, set));
            }
            if pipeline.is_empty() {
                continue;
            }
            for answer in self.namespace.link.pipeline("counting what is due", &pipeline).await? {
                if let Value::Int(number) = answer {
                    waiting += u64::try_from(number).unwrap_or(0);
                }
            }
        }
        Ok(waiting)
    }

    /// The flavour and version of the server (`redis 7.0.15`).
    pub async fn version(&self) -> Result<String, StoreError> {
        Ok(crate::store::server_facts::facts(&self.namespace.link).await?.version)
    }
}

async fn vitals_of(link: &RedisClient) -> Result<RedisStats, StoreError> {
    let info = match link.command("INFO", redis::cmd("INFO").arg("everything")).await? {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::VerbatimString { text, .. } => text,
        _ => String::new(),
    };
    Ok(read(&info))
}

fn read(info: &str) -> RedisStats {
    let number = |name: &str| info_field(info, name).and_then(|text| text.parse::<f64>().ok());
    let seconds = |name: &str| {
        number(&format!("used_cpu_{name}_main_thread"))
            .or_else(|| number(&format!("used_cpu_{name}")))
            .unwrap_or(0.0)
    };
    let bytes =
        |name: &str| info_field(info, name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let buffers = bytes("mem_aof_buffer") + bytes("mem_clients_normal");
    let is_saving = ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"]
        .iter()
        .any(|name| bytes(name) > 0);
    RedisStats {
        cpu_us: (seconds("user") + seconds("sys")) * 1e6,
        data_bytes: bytes("used_memory").saturating_sub(buffers),
        is_saving,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_thread_counts_where_it_is_told() {
        let info = "used_memory:1000\r\nmem_aof_buffer:8\r\nmem_clients_normal:92\r\naof_rewrite_in_progress:1\r\nused_cpu_sys:9.0\r\nused_cpu_user:9.0\r\n";
        assert_eq!(read(info), RedisStats { cpu_us: 18e6, data_bytes: 900, is_saving: true });
        let newer =
            format!("{info}used_cpu_sys_main_thread:1.0\r\nused_cpu_user_main_thread:2.5\r\n");
        assert_eq!(read(&newer).cpu_us, 3.5e6);
    }
}
