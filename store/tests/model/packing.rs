//! `struct.pack` and `struct.unpack` as in Redis: big-endian, with B, I, i and c.

use mlua::{IntoLua as _, Lua, MultiValue, Value};

fn fail(why: String) -> mlua::Error {
    mlua::Error::runtime(why)
}

/// Kind and width of each item of a format.
fn items(format: &[u8]) -> mlua::Result<Vec<(u8, usize)>> {
    let rest = format
        .strip_prefix(b">")
        .ok_or_else(|| fail("the struct of this test knows big-endian only".to_owned()))?;
    let (mut items, mut at) = (Vec::new(), 0);
    while at < rest.len() {
        let kind = rest[at];
        let digits = rest[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let width = std::str::from_utf8(&rest[at + 1..at + 1 + digits])
            .ok()
            .and_then(|text| text.parse().ok());
        match kind {
            b'B' => items.push((kind, 1)),
            b'I' | b'i' => items.push((kind, width.unwrap_or(4))),
            b'c' => items.push((kind, width.unwrap_or(1))),
            other => {
                return Err(fail(format!(
                    "the struct of this test knows no `{}`: add it to packing.rs",
                    other as char
                )));
            }
        }
        at += 1 + digits;
    }
    Ok(items)
}

/// A number as its two's complement.
fn whole(value: &Value) -> mlua::Result<i64> {
    match value {
        Value::Integer(number) => Ok(*number),
        // The cast is that of Redis, in C.
        Value::Number(number) => Ok(*number as i64),
        other => Err(fail(format!("struct.pack: {} is no number", other.type_name()))),
    }
}

pub(crate) fn pack(lua: &Lua, arguments: MultiValue) -> mlua::Result<Value> {
    let mut arguments = arguments.into_iter();
    let mut next = || arguments.next().unwrap_or(Value::Nil);
    let Value::String(format) = next() else {
        return Err(fail("struct.pack: no format".to_owned()));
    };
    let mut packed = Vec::new();
    for (kind, width) in items(&format.as_bytes())? {
        let value = next();
        if kind == b'c' {
            let Value::String(text) = value else {
                return Err(fail("struct.pack: c of no string".to_owned()));
            };
            let text = text.as_bytes();
            packed.extend_from_slice(
                text.get(..width)
                    .ok_or_else(|| fail("struct.pack: string too short".to_owned()))?,
            );
        } else {
            packed.extend_from_slice(&whole(&value)?.to_be_bytes()[8 - width..]);
        }
    }
    lua.create_string(&packed).map(Value::String)
}

pub(crate) fn unpack(
    lua: &Lua,
    (format, bytes, at): (mlua::String, mlua::String, Option<usize>),
) -> mlua::Result<MultiValue> {
    let (mut at, bytes) = (at.unwrap_or(1) - 1, bytes.as_bytes());
    let mut values = Vec::new();
    for (kind, width) in items(&format.as_bytes())? {
        let part =
            bytes.get(at..at + width).ok_or_else(|| fail("data string too short".to_owned()))?;
        at += width;
        values.push(if kind == b'c' {
            Value::String(lua.create_string(part)?)
        } else {
            let filler = if kind == b'i' && part[0] >= 0x80 { 0xff } else { 0 };
            let mut whole = [filler; 8];
            whole[8 - width..].copy_from_slice(part);
            // Lua 5.1 has doubles only.
            (i64::from_be_bytes(whole) as f64).into_lua(lua)?
        });
    }
    values.push((at + 1).into_lua(lua)?);
    Ok(MultiValue::from_vec(values))
}
