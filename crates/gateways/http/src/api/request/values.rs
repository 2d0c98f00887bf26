//! Conversion of arguments and headers between JSON and typed values, as in RabbitMQ.

use serde_json::{Map, Number, Value as Json};
use values::{Table, Value};

use crate::api::request::api_error::ApiError;

pub(in crate::api) fn table(map: &Map<String, Json>) -> Result<Table, ApiError> {
    let mut table = Table::new();
    for (name, value) in map {
        if name.len() > usize::from(u8::MAX) {
            return Err(ApiError::bad_request(format!("the name {name:?} is too long")));
        }
        table.push(name.clone(), typed(value)?);
    }
    Ok(table)
}

fn typed(value: &Json) -> Result<Value, ApiError> {
    Ok(match value {
        Json::Null => Value::Void,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::I64(whole),
            (None, Some(float)) => Value::F64(float),
            (None, None) => return Err(ApiError::bad_request(format!("{number} is no number"))),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(values) => Value::Array(values.iter().map(typed).collect::<Result<_, _>>()?),
        Json::Object(map) => Value::Table(table(map)?),
    })
}

pub(in crate::api) fn json(table: &Table) -> Json {
    Json::Object(table.0.iter().map(|(name, value)| (name.clone(), untyped(value))).collect())
}

fn untyped(value: &Value) -> Json {
    let float = |number: f64| Number::from_f64(number).map_or(Json::Null, Json::Number);
    match value {
        Value::Boolean(value) => Json::Bool(*value),
        Value::F32(number) => float(f64::from(*number)),
        Value::F64(number) => float(*number),
        Value::Decimal(scale, number) => float(f64::from(*number) / 10_f64.powi(i32::from(*scale))),
        Value::LongString(bytes) | Value::ByteArray(bytes) => {
            Json::String(String::from_utf8_lossy(bytes).into_owned())
        }
        Value::Timestamp(seconds) => Json::from(*seconds),
        Value::Void => Json::Null,
        Value::Array(values) => Json::Array(values.iter().map(untyped).collect()),
        Value::Table(table) => json(table),
        whole => Json::from(whole.as_integer().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_round_trip_through_typed_values() {
        let text = r#"{"x-a":1,"x-b":"t","x-c":true,"x-d":[1,"2",null],"x-e":{"f":1.5}}"#;
        let map: Map<String, Json> = serde_json::from_str(text).expect("JSON");
        let typed = table(&map).expect("a table");
        assert_eq!(json(&typed), Json::Object(map));
        let long = Map::from_iter([("x".repeat(256), Json::Null)]);
        assert!(table(&long).is_err());
    }
}
