//! A call of a script, with its keys and arguments.

use std::sync::Arc;

use redis::{Arg, Cmd, ToRedisArgs};

use crate::store::scripts::{Name, Scripts};

/// The words of an EVALSHA before its keys: the command, the hash, and the number of keys.
const HEAD: usize = 3;

/// A call of a script: an EVALSHA that knows the name of its script.
pub(in crate::store) struct ScriptCall {
    script: Name,
    command: Cmd,
    keys: usize,
    /// The script that runs several of these calls, and the number of jobs of this one.
    shared: Option<(Arc<str>, usize)>,
}

impl ScriptCall {
    /// A call with this number of keys. The caller appends the keys, then the arguments.
    pub(in crate::store) fn new(scripts: &Scripts, script: Name, keys: usize) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(scripts.hash(script)).arg(keys);
        let shared = scripts.shared_hash(script).map(|hash| (hash, 0));
        ScriptCall { script, command, keys, shared }
    }

    /// The script.
    pub(in crate::store) fn script(&self) -> Name {
        self.script
    }

    /// Appends a key or an argument, or each of a list.
    pub(in crate::store) fn arg(&mut self, argument: impl ToRedisArgs) -> &mut Self {
        self.command.arg(argument);
        self
    }

    /// The call has so many jobs, and may share a command with others of its script.
    pub(in crate::store) fn with_jobs(&mut self, count: usize) {
        if let Some((_, jobs)) = &mut self.shared {
            *jobs = count;
        }
    }

    /// The hash of the script that runs several of these calls, and the number of jobs; `None`: the
    /// call is a command of its own.
    pub(super) fn shared(&self) -> Option<(&Arc<str>, usize)> {
        self.shared.as_ref().filter(|(_, jobs)| *jobs > 0).map(|(hash, jobs)| (hash, *jobs))
    }

    /// The keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.words().take(self.keys)
    }

    /// The arguments.
    pub(super) fn arguments(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.words().skip(self.keys)
    }

    /// The number of keys.
    pub(super) fn key_count(&self) -> usize {
        self.keys
    }

    /// The keys and the arguments.
    pub(super) fn words(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.command.args_iter().skip(HEAD).map(|word| match word {
            Arg::Simple(bytes) => bytes,
            // No call has a cursor.
            _ => b"0",
        })
    }
}

impl AsRef<Cmd> for ScriptCall {
    fn as_ref(&self) -> &Cmd {
        &self.command
    }
}
