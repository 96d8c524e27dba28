//! Lua with the real scripts, compiled once, and `redis`, `struct`, KEYS and ARGV as Redis gives
//! them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use dwell_store::store::scripts::Name;
use mlua::{Function, Lua, MultiValue, Table, Value};

use crate::call::{Call, Sets, keys_of};
use crate::packing;
use crate::redis::{Moment, Store};
use crate::reply::Reply;

/// The scripts over one store at a time.
pub(crate) struct Scripts {
    lua: Lua,
    server: Rc<RefCell<(Store, Moment)>>,
    compiled: HashMap<Name, Function>,
    keys: HashMap<(Name, Sets), Table>,
}

impl Scripts {
    /// `source`: the text of each script, the real one or a mutant.
    pub(crate) fn new(source: impl Fn(Name) -> String) -> Scripts {
        Scripts::compile(source).unwrap_or_else(|error| panic!("the scripts compile: {error}"))
    }

    fn compile(source: impl Fn(Name) -> String) -> mlua::Result<Scripts> {
        let lua = Lua::new();
        let server = Rc::new(RefCell::new((Store::default(), Moment { now_us: 0, info: "" })));
        let redis = lua.create_table()?;
        let (called, tried) = (server.clone(), server.clone());
        redis.set(
            "call",
            lua.create_function(move |lua, words| {
                command(lua, &called, &words)?.map_err(mlua::Error::runtime)
            })?,
        )?;
        redis.set(
            "pcall",
            lua.create_function(move |lua, words| match command(lua, &tried, &words)? {
                Ok(value) => Ok(value),
                Err(error) => one_field(lua, "err", &error),
            })?,
        )?;
        redis.set(
            "error_reply",
            lua.create_function(|lua, error: String| one_field(lua, "err", &error))?,
        )?;
        redis.set(
            "status_reply",
            lua.create_function(|lua, status: String| one_field(lua, "ok", &status))?,
        )?;
        let packed = lua.create_table()?;
        packed.set("pack", lua.create_function(packing::pack)?)?;
        packed.set("unpack", lua.create_function(packing::unpack)?)?;
        lua.globals().set("redis", redis)?;
        lua.globals().set("struct", packed)?;
        let (mut compiled, mut keys) = (HashMap::new(), HashMap::new());
        for name in Name::ALL {
            let function = lua.load(source(name)).set_name(name.as_str()).into_function()?;
            compiled.insert(name, function);
            for sets in Sets::EACH {
                let words: Vec<mlua::String> = keys_of(name, sets)
                    .iter()
                    .map(|key| lua.create_string(key))
                    .collect::<mlua::Result<_>>()?;
                keys.insert((name, sets), lua.create_sequence_from(words)?);
            }
        }
        Ok(Scripts { lua, server, compiled, keys })
    }

    /// Runs one call. The writes of a failed script stay, as in Redis.
    pub(crate) fn run(&self, store: &Store, moment: &Moment, call: &Call) -> (Store, Reply) {
        let keys = &self.keys[&(call.name, call.sets)];
        self.run_on(store, moment, || self.evaluate(call.name, keys, &call.arguments))
    }

    /// Runs the script of this name with these KEYS and ARGV.
    pub(crate) fn run_with(
        &self,
        store: &Store,
        moment: &Moment,
        name: Name,
        (keys, arguments): (&[Vec<u8>], &[Vec<u8>]),
    ) -> (Store, Reply) {
        self.run_on(store, moment, || self.evaluate(name, &self.table(keys)?, arguments))
    }

    fn run_on(
        &self,
        store: &Store,
        moment: &Moment,
        run: impl FnOnce() -> mlua::Result<Reply>,
    ) -> (Store, Reply) {
        *self.server.borrow_mut() = (store.clone(), moment.clone());
        let reply = run().unwrap_or_else(|error| Reply::Error(error.to_string()));
        (std::mem::take(&mut self.server.borrow_mut().0), reply)
    }

    fn table(&self, words: &[Vec<u8>]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(words.len(), 0)?;
        for word in words {
            table.raw_push(self.lua.create_string(word)?)?;
        }
        Ok(table)
    }

    fn evaluate(&self, name: Name, keys: &Table, arguments: &[Vec<u8>]) -> mlua::Result<Reply> {
        let (function, arguments) = (&self.compiled[&name], self.table(arguments)?);
        let globals = self.lua.globals();
        globals.raw_set("KEYS", keys)?;
        globals.raw_set("ARGV", arguments)?;
        answered(function.call(())?)
    }
}

fn one_field(lua: &Lua, field: &str, text: &str) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.set(field, text)?;
    Ok(Value::Table(table))
}

/// Runs one command. Answers the value for Lua, or the error of the command.
fn command(
    lua: &Lua,
    server: &RefCell<(Store, Moment)>,
    words: &MultiValue,
) -> mlua::Result<Result<Value, String>> {
    let words: Vec<Vec<u8>> = words.iter().map(word).collect::<mlua::Result<_>>()?;
    let (store, moment) = &mut *server.borrow_mut();
    let described = |error| {
        format!(
            "{error}: {}",
            words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
        )
    };
    match store.command(moment, &words) {
        Ok(reply) => into_lua(lua, &reply).map(Ok),
        Err(error) => Ok(Err(described(error))),
    }
}

fn word(value: &Value) -> mlua::Result<Vec<u8>> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        // The format is `%.17g`.
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e17 => {
            Ok(format!("{number:.0}").into_bytes())
        }
        other => {
            Err(mlua::Error::runtime(format!("a command has {} as an argument", other.type_name())))
        }
    }
}

fn into_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Nil => Value::Boolean(false),
        // As Redis: a Lua number.
        Reply::Int(number) => Value::Number(*number as f64),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Status(status) => one_field(lua, "ok", status)?,
        Reply::Error(error) => one_field(lua, "err", error)?,
        Reply::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                table.raw_push(into_lua(lua, item)?)?;
            }
            Value::Table(table)
        }
    })
}

fn answered(value: Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::Nil | Value::Boolean(false) => Reply::Nil,
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(number),
        // As Redis, which cuts a fraction off.
        Value::Number(number) => Reply::Int(number as i64),
        Value::String(text) => Reply::bulk(&*text.as_bytes()),
        Value::Table(table) => {
            if let Value::String(error) = table.raw_get("err")? {
                return Ok(Reply::Error(error.to_string_lossy()));
            }
            if let Value::String(status) = table.raw_get("ok")? {
                return Ok(Reply::Status(status.to_string_lossy()));
            }
            let items: Vec<Value> = table.sequence_values().collect::<mlua::Result<_>>()?;
            Reply::Array(items.into_iter().map(answered).collect::<mlua::Result<_>>()?)
        }
        other => {
            return Err(mlua::Error::runtime(format!("a script answered {}", other.type_name())));
        }
    })
}
