//! Reads JSON and keeps only the fields that somebody asked for.
//!
//! A Deployment of 12 KB holds about ten values that we need. What is not wanted is skipped while it is parsed, so that neither
//! the webhook pays for it in time nor the reflectors in memory.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Which parts of a JSON document to keep.
#[derive(Debug, Clone)]
pub enum Keep {
    /// The whole value.
    All,
    /// A map, of which only the keys that the predicate likes are kept, whole. An empty map is kept as such.
    Keys {
        /// The predicate.
        wanted: fn(&str) -> bool,
        /// Keys that are kept whatever the predicate says.
        also: Vec<String>,
    },
    /// A map, of which only these fields are kept. An empty map is kept as such.
    Fields(BTreeMap<String, Keep>),
    /// A list, each element treated alike.
    Each(Box<Keep>),
}

impl Keep {
    /// A map without wanted fields yet.
    pub fn nothing() -> Self {
        Self::Fields(BTreeMap::new())
    }

    /// Adds `what` at the path. Wins over what was wanted there before only if it wants more.
    pub fn add<'p>(&mut self, path: impl IntoIterator<Item = &'p str>, what: Self) {
        let mut path = path.into_iter();
        match (self, path.next()) {
            (Self::All, _) => {}
            (place, None) => place.merge(what),
            (Self::Fields(fields), Some(field)) => {
                fields
                    .entry(field.to_owned())
                    .or_insert_with(Self::nothing)
                    .add(path, what);
            }
            // A path into what is a list or a filtered map: keep all of it rather than lose the field.
            (place, Some(_)) => *place = Self::All,
        }
    }

    fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::All, _) => {}
            (Self::Fields(mine), Self::Fields(theirs)) => {
                for (field, keep) in theirs {
                    mine.entry(field).or_insert_with(Self::nothing).merge(keep);
                }
            }
            (Self::Each(mine), Self::Each(theirs)) => mine.merge(*theirs),
            (Self::Fields(mine), other) if mine.is_empty() => *self = other,
            (_, Self::Fields(theirs)) if theirs.is_empty() => {}
            _ => *self = Self::All,
        }
    }
}

impl<'de> DeserializeSeed<'de> for &Keep {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Keep::All => <Value as serde::Deserialize>::deserialize(deserializer),
            _ => deserializer.deserialize_any(Pruning(self)),
        }
    }
}

struct Pruning<'k>(&'k Keep);

impl<'de> Visitor<'de> for Pruning<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    // A scalar where a map was expected is kept: whoever reads the field says what is wrong with it.
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let Keep::Each(keep) = self.0 else {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut kept = Vec::new();
        while let Some(value) = list.next_element_seed(&**keep)? {
            kept.push(value);
        }
        Ok(Value::Array(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(wanted) = map.next_key_seed(Wanted(self.0))? {
            match wanted {
                Some((field, keep)) => {
                    kept.insert(field, map.next_value_seed(keep)?);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(kept))
    }
}

/// Reads a key; allocates only for one that is wanted.
struct Wanted<'k>(&'k Keep);

impl<'de, 'k> DeserializeSeed<'de> for Wanted<'k> {
    type Value = Option<(String, &'k Keep)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'k> Visitor<'_> for Wanted<'k> {
    type Value = Option<(String, &'k Keep)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(match self.0 {
            Keep::Keys { wanted, also } if wanted(key) || also.iter().any(|wanted| wanted == key) => {
                Some((key.to_owned(), &Keep::All))
            }
            Keep::Fields(fields) => fields.get(key).map(|keep| (key.to_owned(), keep)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prune(keep: &Keep, text: &str) -> Value {
        keep.deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap()
    }

    #[test]
    fn only_what_is_wanted_is_kept() {
        let mut keep = Keep::nothing();
        keep.add(["spec", "replicas"], Keep::All);
        keep.add(
            ["metadata", "annotations"],
            Keep::Keys {
                wanted: |key| key.starts_with("ours/"),
                also: Vec::new(),
            },
        );
        keep.add(["status", "conditions"], Keep::Each(Box::new(Keep::nothing())));
        let text = r#"{"spec":{"replicas":3,"template":{"big":[1,2,{"x":"y"}]}},"metadata":{"annotations":{"ours/a":"1","b":"2"}},
                       "status":{"conditions":[{"type":"A"}]},"kind":"X"}"#;
        assert_eq!(
            prune(&keep, text),
            json!({"spec": {"replicas": 3}, "metadata": {"annotations": {"ours/a": "1"}}, "status": {"conditions": [{}]}})
        );
    }

    #[test]
    fn presence_of_an_empty_map_is_kept_and_odd_shapes_do_no_harm() {
        let mut keep = Keep::nothing();
        keep.add(
            ["metadata", "annotations"],
            Keep::Keys {
                wanted: |_| false,
                also: Vec::new(),
            },
        );
        keep.add(["spec", "replicas"], Keep::All);
        assert_eq!(
            prune(&keep, r#"{"metadata":{"annotations":{"b":"2"}}}"#),
            json!({"metadata": {"annotations": {}}})
        );
        assert_eq!(
            prune(&keep, r#"{"metadata":7,"spec":[1]}"#),
            json!({"metadata": 7, "spec": null})
        );
        assert_eq!(prune(&keep, "null"), Value::Null);
    }

    #[test]
    fn paths_that_meet_keep_the_union() {
        let mut keep = Keep::nothing();
        keep.add(["spec"], Keep::nothing());
        keep.add(["spec", "a"], Keep::All);
        keep.add(["spec", "b", "c"], Keep::All);
        keep.add(["spec", "a", "x"], Keep::All);
        assert_eq!(
            prune(&keep, r#"{"spec":{"a":{"z":1},"b":{"c":2,"d":3},"e":4}}"#),
            json!({"spec": {"a": {"z": 1}, "b": {"c": 2}}})
        );
    }
}
