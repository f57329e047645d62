//! Prints the public items of a crate, a line each, from the JSON that rustdoc made of it.
//!
//! A prelude is printed as the imports that it is, or every item in it would be listed a second time.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;

use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: list-public-api RUSTDOC_JSON")?;
    let mut json: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let prelude = take_prelude(&mut json).unwrap_or_default();
    let rest = format!("{path}.rest");
    fs::write(&rest, json.to_string())?;
    let api = public_api::Builder::from_rustdoc_json(rest)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    print!("{api}");
    for import in prelude {
        println!("{import}");
    }
    Ok(())
}

/// Takes the module `prelude` out of the root of the crate, and returns its imports.
fn take_prelude(json: &mut Value) -> Option<Vec<String>> {
    let root = json["root"].to_string();
    let children = json["index"][&root]["inner"]["module"]["items"].as_array()?.clone();
    let named = |id: &&Value| json["index"][&id.to_string()]["name"] == "prelude";
    let prelude = children.iter().find(named)?.clone();
    let mut imports = Vec::new();
    for id in json["index"][&prelude.to_string()]["inner"]["module"]["items"].as_array()? {
        let import = &json["index"][&id.to_string()]["inner"]["use"];
        imports.push(format!(
            "pub use prelude::{} = {}",
            import["name"].as_str()?,
            import["source"].as_str()?
        ));
    }
    imports.sort();
    let others = children.into_iter().filter(|id| *id != prelude).collect();
    json["index"][&root]["inner"]["module"]["items"] = Value::Array(others);
    Some(imports)
}
