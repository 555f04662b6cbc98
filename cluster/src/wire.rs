//! Lists and watches as they come over the wire, pruned while they are parsed. No client required.

use std::fmt;

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use shared::prune::Keep;

/// What a list says beside its items.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListMeta {
    /// From where a watch goes on.
    pub resource_version: String,
    /// The next page, if there is one.
    pub next: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Parses one page and hands each pruned item on, so that a page is never in memory as a whole tree.
pub fn parse_list(body: &[u8], keep: &Keep, item: &mut dyn FnMut(Value)) -> Result<ListMeta, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let meta = ListSeed { keep, item }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(meta)
}

struct ListSeed<'a> {
    keep: &'a Keep,
    item: &'a mut dyn FnMut(Value),
}

impl<'de> DeserializeSeed<'de> for ListSeed<'_> {
    type Value = ListMeta;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ListMeta, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_> {
    type Value = ListMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ListMeta, A::Error> {
        let mut meta = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match key.as_ref() {
                "metadata" => meta = Some(map.next_value::<RawListMeta>()?),
                "items" => map.next_value_seed(ItemsSeed {
                    keep: self.keep,
                    item: &mut *self.item,
                })?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let meta = meta.ok_or_else(|| serde::de::Error::missing_field("metadata"))?;
        Ok(ListMeta {
            resource_version: meta.resource_version,
            next: meta.next.filter(|next| !next.is_empty()),
        })
    }
}

struct ItemsSeed<'a> {
    keep: &'a Keep,
    item: &'a mut dyn FnMut(Value),
}

impl<'de> DeserializeSeed<'de> for ItemsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // Go writes an empty list of a custom resource as `null` in places.
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(object) = list.next_element_seed(self.keep)? {
            (self.item)(object);
        }
        Ok(())
    }
}

/// One line of a watch.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchLine {
    /// Added or modified.
    Set(Value),
    /// Deleted: the last state.
    Gone(Value),
    /// Nothing changed up to this resourceVersion.
    Bookmark(Value),
    /// The watch failed; a Status as text.
    Error(String),
}

#[derive(Deserialize)]
struct RawLine<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Parses one line; `None` for a type that this version does not know.
pub fn parse_line(line: &[u8], keep: &Keep) -> Result<Option<WatchLine>, serde_json::Error> {
    let raw: RawLine<'_> = serde_json::from_slice(line)?;
    let object = || keep.deserialize(&mut serde_json::Deserializer::from_str(raw.object.get()));
    Ok(match raw.kind.as_ref() {
        "ADDED" | "MODIFIED" => Some(WatchLine::Set(object()?)),
        "DELETED" => Some(WatchLine::Gone(object()?)),
        "BOOKMARK" => Some(WatchLine::Bookmark(object()?)),
        "ERROR" => Some(WatchLine::Error(raw.object.get().to_owned())),
        _ => None,
    })
}

/// The resourceVersion of a pruned object.
pub fn resource_version(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion")?.as_str()
}
