//! A call of a script, with its keys and arguments.

use redis::{Cmd, ToRedisArgs};

use crate::store::scripts::{Name, Scripts};

/// A call of a script: an EVALSHA that knows the name of its script.
pub(in crate::store) struct ScriptCall {
    script: Name,
    command: Cmd,
}

impl ScriptCall {
    /// A call with this number of keys. The caller appends the keys, then the arguments.
    pub(in crate::store) fn new(scripts: &Scripts, script: Name, keys: usize) -> Self {
        let mut command = redis::cmd("EVALSHA");
        command.arg(scripts.hash(script)).arg(keys);
        ScriptCall { script, command }
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
}

impl AsRef<Cmd> for ScriptCall {
    fn as_ref(&self) -> &Cmd {
        &self.command
    }
}
