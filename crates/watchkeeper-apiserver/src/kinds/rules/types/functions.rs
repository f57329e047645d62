//! The functions that rules can call, from a table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::Type;

/// The overloads of all functions by name; those that are called on a value have their receiver as first parameter.
pub(super) struct Functions {
    global: BTreeMap<&'static str, Vec<Overload>>,
    methods: BTreeMap<&'static str, Vec<Overload>>,
    /// The first parts of qualified names: `optional`, `sets`.
    pub(super) namespaces: BTreeSet<&'static str>,
}

/// Namespaces of functions whose overloads are not in the table: calls of them have any type.
const UNTYPED: [&str; 10] =
    ["base64", "cel", "format", "ip", "jsonpatch", "lists", "math", "regex", "sets", "strings"];

struct Overload {
    parameters: Vec<Shape>,
    result: Shape,
}

/// The type of a parameter or result.
enum Shape {
    Dyn,
    /// `int`, `uint` or `double`.
    Number,
    Variable(u8),
    Plain(&'static str),
    List(Box<Shape>),
    Map(Box<Shape>, Box<Shape>),
    Optional(Box<Shape>),
}

/// The types that the variables of an overload stand for.
type Bound<'a> = [Option<Type<'a>>; 2];

pub(super) static FUNCTIONS: LazyLock<Functions> = LazyLock::new(Functions::read);

impl Functions {
    fn read() -> Self {
        let mut read = Self { global: BTreeMap::new(), methods: BTreeMap::new(), namespaces: UNTYPED.into() };
        let lines = include_str!("functions.txt").lines();
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            read.enter(line);
        }
        read
    }

    /// Enters a line of the table: `string.contains(string) bool`.
    fn enter(&mut self, line: &'static str) {
        let Some((name, rest)) = line.split_once('(') else { return };
        let Some((parameters, result)) = rest.rsplit_once(") ") else { return };
        let mut parameters: Vec<_> = split(parameters).into_iter().map(Shape::read).collect();
        let mut into = &mut self.global;
        let mut key = name;
        if let Some(qualified) = name.strip_prefix("ns ") {
            self.namespaces.extend(qualified.split('.').next());
            key = qualified;
        } else if let Some((receiver, method)) = name.rsplit_once('.') {
            parameters.insert(0, Shape::read(receiver));
            (into, key) = (&mut self.methods, method);
        }
        into.entry(key).or_default().push(Overload { parameters, result: Shape::read(result) });
    }

    /// Returns the type of a call: `Err(true)` if there is no such function, `Err(false)` if no overload takes these
    /// arguments. `is_method` if the first argument is what the function is called on.
    pub(super) fn call<'a>(
        &self,
        name: &str,
        is_method: bool,
        arguments: &[Type<'a>],
    ) -> Result<Type<'a>, bool> {
        let name = match name {
            "_<=_" | "_>_" | "_>=_" => "_<_",
            name => name,
        };
        let of = |map: &'_ BTreeMap<_, Vec<Overload>>| map.contains_key(name);
        let overloads = match (if is_method { &self.methods } else { &self.global }).get(name) {
            Some(overloads) => overloads,
            None => return Err(!of(&self.methods) && !of(&self.global)),
        };
        let mut results = overloads.iter().filter_map(|overload| overload.call(arguments));
        let first = results.next().ok_or(false)?;
        Ok(results.fold(first, |all, next| if all == next { all } else { Type::Dyn }))
    }
}

impl Overload {
    fn call<'a>(&self, arguments: &[Type<'a>]) -> Option<Type<'a>> {
        let mut bound = [None, None];
        let fit = |(shape, argument): (&Shape, &Type<'a>)| shape.takes(argument, &mut bound);
        let fits = self.parameters.len() == arguments.len() && self.parameters.iter().zip(arguments).all(fit);
        fits.then(|| self.result.with(&bound))
    }
}

impl Shape {
    fn read(text: &'static str) -> Self {
        let inside = |name: &str| text.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>');
        let boxed = |text| Box::new(Self::read(text));
        if let Some(element) = inside("list") {
            return Self::List(boxed(element));
        }
        if let Some(value) = inside("optional") {
            return Self::Optional(boxed(value));
        }
        if let Some([key, value]) = inside("map").map(split).as_deref() {
            return Self::Map(boxed(key), boxed(value));
        }
        match text {
            "dyn" => Self::Dyn,
            "number" => Self::Number,
            "A" => Self::Variable(0),
            "B" => Self::Variable(1),
            "ip" => Self::Plain("net.IP"),
            "cidr" => Self::Plain("net.CIDR"),
            "url" => Self::Plain("kubernetes.URL"),
            "quantity" => Self::Plain("kubernetes.Quantity"),
            "semver" => Self::Plain("kubernetes.Semver"),
            "format" => Self::Plain("kubernetes.NamedFormat"),
            plain => Self::Plain(plain),
        }
    }

    /// Returns whether an argument of this type is accepted, and binds the variables.
    fn takes<'a>(&self, argument: &Type<'a>, bound: &mut Bound<'a>) -> bool {
        if let Self::Variable(at) = self {
            let known = &mut bound[usize::from(*at)];
            let fits = known.as_ref().is_none_or(|known| known.fits(argument));
            *known = Some(match known.take() {
                Some(known) => known.or(argument.clone()),
                None => argument.clone(),
            });
            return fits;
        }
        match (self, argument) {
            (_, argument) if argument.is_unknown() => true,
            (Self::Number, Type::Plain(name)) => ["int", "uint", "double"].contains(name),
            (Self::Plain(name), argument) => Type::Plain(name).fits(argument),
            (Self::List(shape), Type::List(part)) | (Self::Optional(shape), Type::Optional(part)) => {
                shape.takes(part, bound)
            }
            (Self::Map(key, value), Type::Map(name, part)) => {
                key.takes(name, bound) && value.takes(part, bound)
            }
            (Self::Optional(_), argument) => *argument == Type::Null,
            (Self::Dyn, _) => true,
            _ => false,
        }
    }

    /// Returns the type with its variables replaced.
    fn with<'a>(&self, bound: &Bound<'a>) -> Type<'a> {
        let inside = |shape: &Self| Box::new(shape.with(bound));
        match self {
            Self::Dyn | Self::Number => Type::Dyn,
            Self::Variable(at) => bound[usize::from(*at)].clone().unwrap_or(Type::Unbound),
            Self::Plain(name) => Type::Plain(name),
            Self::List(element) => Type::List(inside(element)),
            Self::Map(key, value) => Type::Map(inside(key), inside(value)),
            Self::Optional(value) => Type::Optional(inside(value)),
        }
    }
}

/// Splits at the commas that are not within brackets.
fn split(text: &'static str) -> Vec<&'static str> {
    let mut depth = 0_usize;
    let outside = |letter: char| {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    text.split(outside).map(str::trim).filter(|part| !part.is_empty()).collect()
}
