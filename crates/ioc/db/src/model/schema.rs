//! Record types: their fields, menus and device supports, parsed from `.dbd` text.

use crate::model::link::LinkField;
use crate::text::error::FileError;
use crate::text::lex::{Lexer, Token};
use base::{FieldType, nearest};
use std::collections::HashMap;

/// Action when a field is written (`special` in a `.dbd`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "EPICS' own words")]
pub enum Special {
    #[default]
    None,
    NoMod,
    DbAddr,
    Scan,
    AlarmAck,
    As,
    Attribute,
    Mod,
    Reset,
    LinConv,
    Calc,
}

/// One field of a record type.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldDef {
    /// Name, such as `HIHI`.
    pub name: String,
    /// Type; `None` for fields that only C code accesses (DBF_NOACCESS).
    pub kind: Option<FieldType>,
    /// The word after `DBF_`.
    pub dbf: String,
    /// Description of the field (`prompt` in a `.dbd`).
    pub prompt: String,
    /// Group in configuration tools; empty for fields that are not configured.
    pub group: String,
    /// Action when the field is written.
    pub special: Special,
    /// Writing it processes a passive record.
    pub process_passive: bool,
    /// Minimum level of detail at which a listing includes the field.
    pub interest: u8,
    /// Size of a text in bytes, including its NUL.
    pub size: u16,
    /// Name of the menu.
    pub menu: Option<String>,
    /// Initial value.
    pub initial: Option<String>,
    /// Access security level, 0 or 1.
    pub level: u8,
    /// A change is posted as DBE_PROPERTY.
    pub property: bool,
    /// Numbers are printed in hexadecimal.
    pub hex: bool,
    /// Storage location.
    pub(crate) at: At,
    /// Number of the menu.
    pub(crate) menu_index: Option<u16>,
}

impl FieldDef {
    /// The kind of link that the field holds.
    pub(crate) fn link_field(&self) -> Option<LinkField> {
        // This is called on every write, and most fields are not links.
        if self.kind != Some(FieldType::Link) {
            return None;
        }
        match self.dbf.as_str() {
            "INLINK" => Some(LinkField::In),
            "OUTLINK" => Some(LinkField::Out),
            "FWDLINK" => Some(LinkField::Forward),
            _ => None,
        }
    }
}

/// Storage location of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum At {
    /// Not stored.
    #[default]
    Nowhere,
    /// In the part common to all records.
    Common(u16),
    /// In the part specific to the record type.
    Body(u16),
}

/// A menu: a list of choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Menu {
    /// Name.
    pub name: String,
    /// Texts of the choices, by number.
    pub choices: Vec<String>,
    /// C identifiers of the choices, by number.
    pub names: Vec<String>,
}

/// One record type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeDef {
    /// Name, such as `ai`.
    pub name: String,
    /// Fields in `.dbd` order.
    pub fields: Vec<FieldDef>,
    /// Device supports by number.
    pub devices: Vec<Device>,
    /// Field numbers by name.
    pub(crate) by_name: HashMap<u64, u16, base::NumberHash>,
    /// Number of the field VAL.
    pub(crate) val: u16,
}

/// A device support that a record can select in DTYP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name in DTYP.
    pub name: String,
    /// Kind of link: `CONSTANT`, `INST_IO`, ….
    pub link: String,
}

/// A breakpoint table: converts raw values to engineering units, piecewise linear.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakTable {
    /// Name, as in menuConvert.
    pub name: String,
    /// Pairs of raw and engineering value.
    pub points: Vec<(f64, f64)>,
}

/// All definitions of `.dbd` files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// Menus.
    pub menus: Vec<Menu>,
    /// Record types.
    pub types: Vec<TypeDef>,
    /// Breakpoint tables.
    pub tables: Vec<BreakTable>,
    /// Lines of user `.dbd` files that name C code, which tahti cannot load: the keyword, such as `driver`, and its
    /// arguments.
    pub(crate) declared: Vec<(String, Vec<String>)>,
}

/// Packs a field name of at most eight bytes into a number.
pub(crate) fn pack(name: &[u8]) -> Option<u64> {
    if name.len() > 8 {
        return None;
    }
    let mut bytes = [0; 8];
    bytes[..name.len()].copy_from_slice(name);
    Some(u64::from_le_bytes(bytes))
}

impl TypeDef {
    /// Number of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<u16> {
        self.by_name.get(&pack(name.as_bytes())?).copied()
    }

    /// The field with the most similar name.
    pub(crate) fn nearest_field(&self, name: &str) -> Option<String> {
        nearest(name, self.fields.iter().map(|field| field.name.as_str())).map(str::to_owned)
    }
}

impl Schema {
    /// Parses a `.dbd`, without the built-in definitions.
    ///
    /// # Errors
    /// The first thing in the file that is malformed.
    pub fn from_dbd(
        text: &str,
        file: &str,
        include: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<Self, FileError> {
        let mut schema = Self::default();
        schema.read(text, file, include, true)?;
        Ok(schema)
    }

    /// Number of a record type.
    #[must_use]
    pub fn type_index(&self, name: &str) -> Option<usize> {
        self.types.iter().position(|kind| kind.name == name)
    }

    /// Number of a menu.
    #[must_use]
    pub fn menu_index(&self, name: &str) -> Option<usize> {
        self.menus.iter().position(|menu| menu.name == name)
    }

    /// Loads a user's `.dbd`. Its menus and breakpoint tables replace built-in ones. Its record types must be built-in ones.
    ///
    /// # Errors
    /// The first thing in the file that is malformed, or a record type that tahti does not have.
    pub fn load(
        &mut self,
        text: &str,
        file: &str,
        include: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<(), FileError> {
        self.read(text, file, include, false)
    }

    fn read(
        &mut self,
        text: &str,
        file: &str,
        include: &mut dyn FnMut(&str) -> Option<String>,
        ours: bool,
    ) -> Result<(), FileError> {
        let mut lexer = Lexer::new(text, file);
        self.statements(&mut lexer, include, ours, 0)
    }

    fn statements(
        &mut self,
        lexer: &mut Lexer<'_>,
        include: &mut dyn FnMut(&str) -> Option<String>,
        ours: bool,
        depth: u32,
    ) -> Result<(), FileError> {
        loop {
            let (token, place) = lexer.next()?;
            let word = match token {
                Token::End => return Ok(()),
                Token::Word { text, .. } => text,
                Token::Punct(_) => return Err(lexer.error(place, "expected menu, recordtype, device, …")),
            };
            match &*word {
                "include" => {
                    let (name, place) = lexer.word("the name of a file")?;
                    let text = include(&name).ok_or_else(|| lexer.error(place, format!("cannot read \"{name}\"")))?;
                    if depth >= 16 {
                        return Err(lexer.error(place, "files include each other more than 16 deep"));
                    }
                    self.statements(&mut Lexer::new(&text, &name), include, ours, depth + 1)?;
                }
                "path" | "addpath" => {
                    lexer.word("a path")?;
                }
                "menu" => self.menu(lexer)?,
                "recordtype" => self.record_type(lexer, include, ours)?,
                "breaktable" => self.break_table(lexer)?,
                "device" | "driver" | "registrar" | "function" | "variable" | "link" => {
                    lexer.punct(b'(', "after the word")?;
                    let mut arguments = Vec::new();
                    while !lexer.take(b')') {
                        arguments.push(lexer.word("an argument")?.0.into_owned());
                        lexer.take(b',');
                    }
                    self.foreign(&word, &arguments, ours);
                }
                other => {
                    return Err(lexer.error(place, format!("found \"{other}\", expected menu, recordtype, device, driver, link, registrar, function, variable, breaktable or include")));
                }
            }
        }
    }

    /// Arguments of the user `.dbd` lines with this keyword: `device`, `driver`, `registrar`, `function`, `variable`, `link`.
    pub fn declared(&self, word: &str) -> impl Iterator<Item = &[String]> {
        self.declared.iter().filter(move |(known, _)| known == word).map(|(_, names)| &names[..])
    }

    /// Handles a line that names C code. Device supports of EPICS base are built in; other names are recorded. A recorded
    /// device can still be selected in DTYP, like one whose support is missing in C.
    fn foreign(&mut self, word: &str, arguments: &[String], ours: bool) {
        if word == "device"
            && arguments.len() == 4
            && let Some(kind) = self.types.iter_mut().find(|kind| kind.name == arguments[0])
        {
            if kind.devices.iter().any(|device| device.name == arguments[3]) {
                return;
            }
            kind.devices.push(Device { name: arguments[3].clone(), link: arguments[1].clone() });
        }
        let line = (word.to_owned(), arguments.to_vec());
        if !ours && !self.declared.contains(&line) {
            self.declared.push(line);
        }
    }

    /// `(name) { choice(name, "text") … }`
    pub(crate) fn menu(&mut self, lexer: &mut Lexer<'_>) -> Result<(), FileError> {
        lexer.punct(b'(', "after menu")?;
        let name = lexer.word("the name of the menu")?.0.into_owned();
        lexer.punct(b')', "after the name")?;
        lexer.punct(b'{', "before the choices")?;
        let (mut choices, mut names) = (Vec::new(), Vec::new());
        while !lexer.take(b'}') {
            let (word, place) = lexer.word("choice or }")?;
            if word == "include" {
                lexer.word("a file")?;
                continue;
            }
            if word != "choice" {
                return Err(lexer.error(place, format!("found \"{word}\", expected choice or }}")));
            }
            lexer.punct(b'(', "after choice")?;
            names.push(lexer.word("the name of the choice")?.0.into_owned());
            lexer.punct(b',', "after the name")?;
            choices.push(lexer.word("the text of the choice")?.0.into_owned());
            lexer.punct(b')', "after the text")?;
        }
        match self.menu_index(&name) {
            Some(index) => self.menus[index] = Menu { name, choices, names },
            None => self.menus.push(Menu { name, choices, names }),
        }
        Ok(())
    }

    /// `(name) { raw, eng, … }`
    pub(crate) fn break_table(&mut self, lexer: &mut Lexer<'_>) -> Result<(), FileError> {
        lexer.punct(b'(', "after breaktable")?;
        let name = lexer.word("the name of the table")?.0.into_owned();
        lexer.punct(b')', "after the name")?;
        lexer.punct(b'{', "before the numbers")?;
        let mut numbers: Vec<f64> = Vec::new();
        let mut last = lexer.place();
        while !lexer.take(b'}') {
            if lexer.take(b',') {
                continue;
            }
            let (word, place) = lexer.word("a number or }")?;
            last = place;
            numbers.push(word.parse().map_err(|_| lexer.error(place, format!("found \"{word}\", expected a number")))?);
        }
        if !numbers.len().is_multiple_of(2) || numbers.len() < 4 {
            return Err(lexer.error(
                last,
                format!(
                    "breaktable {name} holds {} numbers, expected at least two pairs of raw and engineering value",
                    numbers.len()
                ),
            ));
        }
        let points: Vec<_> = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        self.tables.retain(|table| table.name != name);
        self.tables.push(BreakTable { name, points });
        Ok(())
    }

    fn record_type(
        &mut self,
        lexer: &mut Lexer<'_>,
        include: &mut dyn FnMut(&str) -> Option<String>,
        ours: bool,
    ) -> Result<(), FileError> {
        lexer.punct(b'(', "after recordtype")?;
        let (name, place) = lexer.word("the name of the record type")?;
        let name = name.into_owned();
        if !ours && self.type_index(&name).is_none() {
            let known = nearest(&name, self.types.iter().map(|kind| kind.name.as_str()));
            let hint = known.map_or(String::new(), |known| format!("; nearest is \"{known}\""));
            return Err(lexer.error(
                place,
                format!("record type \"{name}\" is not one that tahti has (its C code cannot be loaded){hint}"),
            ));
        }
        lexer.punct(b')', "after the name")?;
        lexer.punct(b'{', "before the fields")?;
        let mut fields = Vec::new();
        self.fields(lexer, include, &mut fields, 0)?;
        if ours {
            self.types.push(finish(name, fields, &self.menus));
        }
        Ok(())
    }

    fn fields(
        &self,
        lexer: &mut Lexer<'_>,
        include: &mut dyn FnMut(&str) -> Option<String>,
        fields: &mut Vec<FieldDef>,
        depth: u32,
    ) -> Result<(), FileError> {
        loop {
            if depth == 0 && lexer.take(b'}') {
                return Ok(());
            }
            if depth > 0 && *lexer.peek()? == Token::End {
                return Ok(());
            }
            let (word, place) = lexer.word("field, include or }")?;
            match &*word {
                "include" => {
                    let (name, place) = lexer.word("the name of a file")?;
                    let text = include(&name).ok_or_else(|| lexer.error(place, format!("cannot read \"{name}\"")))?;
                    if depth >= 16 {
                        return Err(lexer.error(place, "files include each other more than 16 deep"));
                    }
                    self.fields(&mut Lexer::new(&text, &name), include, fields, depth + 1)?;
                }
                "field" => fields.push(field(lexer)?),
                other => return Err(lexer.error(place, format!("found \"{other}\", expected field, include or }}"))),
            }
        }
    }
}

fn finish(name: String, mut fields: Vec<FieldDef>, menus: &[Menu]) -> TypeDef {
    for field in &mut fields {
        field.menu_index = field
            .menu
            .as_ref()
            .and_then(|name| menus.iter().position(|menu| menu.name == *name))
            .map(|index| index as u16);
    }
    let by_name: HashMap<_, _, _> = fields
        .iter()
        .enumerate()
        .filter_map(|(index, field)| Some((pack(field.name.as_bytes())?, index as u16)))
        .collect();
    let val = pack(b"VAL").and_then(|name| by_name.get(&name).copied()).unwrap_or(0);
    TypeDef { name, fields, devices: Vec::new(), by_name, val }
}

/// One `field(NAME,DBF_X){…}`.
fn field(lexer: &mut Lexer<'_>) -> Result<FieldDef, FileError> {
    lexer.punct(b'(', "after field")?;
    let name = lexer.word("the name of the field")?.0.into_owned();
    lexer.punct(b',', "after the name")?;
    let (dbf, place) = lexer.word("a type such as DBF_DOUBLE")?;
    let dbf = dbf.strip_prefix("DBF_").unwrap_or(&dbf).to_owned();
    lexer.punct(b')', "after the type")?;
    lexer.punct(b'{', "before the attributes")?;
    let kind = match dbf.as_str() {
        "STRING" => Some(FieldType::String),
        "CHAR" => Some(FieldType::I8),
        "UCHAR" => Some(FieldType::U8),
        "SHORT" => Some(FieldType::I16),
        "USHORT" => Some(FieldType::U16),
        "LONG" => Some(FieldType::I32),
        "ULONG" => Some(FieldType::U32),
        "INT64" => Some(FieldType::I64),
        "UINT64" => Some(FieldType::U64),
        "FLOAT" => Some(FieldType::F32),
        "DOUBLE" => Some(FieldType::F64),
        "ENUM" => Some(FieldType::Enum),
        "MENU" => Some(FieldType::Menu),
        "DEVICE" => Some(FieldType::Device),
        "INLINK" | "OUTLINK" | "FWDLINK" => Some(FieldType::Link),
        "NOACCESS" => None,
        other => return Err(lexer.error(place, format!("found DBF_{other}, expected a field type such as DBF_DOUBLE"))),
    };
    let mut def = FieldDef {
        name,
        kind,
        dbf,
        prompt: String::new(),
        group: String::new(),
        special: Special::None,
        process_passive: false,
        interest: 0,
        size: 0,
        menu: None,
        initial: None,
        level: 1,
        property: false,
        hex: false,
        at: At::Nowhere,
        menu_index: None,
    };
    while !lexer.take(b'}') {
        let (attribute, _) = lexer.word("an attribute or }")?;
        lexer.punct(b'(', "after the attribute")?;
        let (value, place) = lexer.word("its value")?;
        lexer.punct(b')', "after the value")?;
        match &*attribute {
            "prompt" => def.prompt = value.into_owned(),
            "promptgroup" => def.group = value.into_owned(),
            "special" => {
                def.special = match value.strip_prefix("SPC_").unwrap_or(&value) {
                    "NOMOD" => Special::NoMod,
                    "DBADDR" => Special::DbAddr,
                    "SCAN" => Special::Scan,
                    "ALARMACK" => Special::AlarmAck,
                    "AS" => Special::As,
                    "ATTRIBUTE" => Special::Attribute,
                    "MOD" => Special::Mod,
                    "RESET" => Special::Reset,
                    "LINCONV" => Special::LinConv,
                    "CALC" => Special::Calc,
                    // Specials of foreign record types have no effect here.
                    _ => Special::None,
                }
            }
            "pp" => def.process_passive = matches!(&*value, "TRUE" | "YES"),
            "interest" => {
                def.interest = value
                    .parse()
                    .map_err(|_| lexer.error(place, format!("found interest \"{value}\", expected a small number")))?;
            }
            "size" => {
                def.size = value
                    .parse()
                    .map_err(|_| lexer.error(place, format!("found size \"{value}\", expected a number of bytes")))?;
            }
            "menu" => def.menu = Some(value.into_owned()),
            "initial" => def.initial = Some(value.into_owned()),
            "asl" => def.level = u8::from(value != "ASL0"),
            "prop" => def.property = matches!(&*value, "YES" | "TRUE"),
            "base" => def.hex = value == "HEX",
            _ => {}
        }
    }
    Ok(def)
}
