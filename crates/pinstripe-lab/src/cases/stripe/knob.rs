//! The difference between the variants of a load: the value of one setting (knob), which either
//! needs its own array or can be changed on the running array.

use pinstripe_array::{CreateOptions, Knob, Layout, Volume, chunk_bytes_of, consistency_of};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::{MIB, parse_size};

/// One value of a knob.
#[derive(Debug, Clone)]
pub(crate) struct KnobValue {
    /// The value as it was typed.
    pub text: String,
    /// The options with which the array of this value is created.
    pub making: CreateOptions,
    /// The setting that is changed on the running array before each run; `None` if the array was
    /// created with it.
    turn: Option<Knob>,
}

/// Properties that are set when an array is created, under the names of `array create`.
const MADE: [&str; 4] = ["chunk", "layout", "consistency-policy", "log-size"];
/// The settings that can be changed on a running array, under the names of `array set`, and that
/// affect the loads.
const TURNED: [&str; 4] = ["stripe_size", "stripe_cache_size", "rmw_level", "write_deadline"];

/// Reads `NAME=BEFORE,AFTER`: the name, and each value. If only one value is given, it is measured
/// without a verdict.
///
/// # Errors
/// [`Kind::Usage`] for an unknown knob, a knob without a value, an invalid value, or a value that
/// is given twice.
pub fn read(text: &str, base: &CreateOptions) -> Result<(String, Vec<KnobValue>)> {
    let (name, texts) = text.split_once('=').unwrap_or((text, ""));
    let known = || MADE.into_iter().chain(TURNED).collect::<Vec<_>>().join(", ");
    let Some(name) = name_of(name) else {
        let error = Error::new(Kind::Usage, format!("'{name}' is not a setting of an array"));
        return Err(error.advice(format!("the settings are {}", known())));
    };
    let texts: Vec<&str> = texts.split(',').filter(|it| !it.is_empty()).collect();
    if texts.is_empty() {
        let error = Error::new(Kind::Usage, "the setting needs at least one value");
        return Err(error.advice(format!("--knob {name}=BEFORE,AFTER")));
    }
    Ok((name.to_owned(), each_once(name, &texts, base)?))
}

/// Reads granules as the values of a knob.
///
/// # Errors
/// [`Kind::Usage`] for an invalid granule, or one that is given twice.
pub fn granules(words: &[&str], base: &CreateOptions) -> Result<Vec<KnobValue>> {
    each_once(TURNED[0], words, base)
}

/// Reads the values, which must all differ: a value compared with itself would show nothing.
fn each_once(name: &str, texts: &[&str], base: &CreateOptions) -> Result<Vec<KnobValue>> {
    let mut all: Vec<KnobValue> = Vec::new();
    for text in texts {
        let new = value(name, text, base)?;
        if let Some(same) = all.iter().find(|it| it.is_same(&new)) {
            let what = format!("{name} has the same value twice, as {text} and as {}", same.text);
            return Err(Error::new(Kind::Usage, what).advice("give each value only once"));
        }
        all.push(new);
    }
    Ok(all)
}

/// Whether there is a knob of exactly this name.
pub(crate) fn is_knob(name: &str) -> bool {
    MADE.contains(&name) || TURNED.contains(&name)
}

/// Returns the known name of a knob, whether it was typed with `-` or with `_`.
fn name_of(typed: &str) -> Option<&'static str> {
    let alike = |name: &str| name.replace('-', "_") == typed.replace('-', "_");
    MADE.into_iter().chain(TURNED).find(|name| alike(name))
}

fn value(name: &str, text: &str, base: &CreateOptions) -> Result<KnobValue> {
    let mut making = base.clone();
    let mut turn = None;
    match name {
        "chunk" => making.chunk_bytes = chunk_bytes_of(text)?,
        "layout" => making.layout = Layout::parse(making.level, text)?,
        "consistency-policy" => making.consistency = consistency_of(text)?,
        "log-size" => making.log_bytes = parse_size(text)?.max(MIB).next_multiple_of(MIB),
        _ => turn = Some(Knob::parse(name, text)?),
    }
    Ok(KnobValue { text: text.to_owned(), making, turn })
}

impl KnobValue {
    /// Whether the knob is changed on a running array, which all values of the knob then share.
    pub(crate) fn is_turned(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether another value of the same knob is equal, however it was typed.
    fn is_same(&self, other: &KnobValue) -> bool {
        let making = |it: &KnobValue| {
            let CreateOptions { layout, chunk_bytes, log_bytes, consistency, .. } = it.making;
            (layout, chunk_bytes, log_bytes, consistency)
        };
        (making(self), self.turn) == (making(other), other.turn)
    }

    /// Turns it.
    ///
    /// # Errors
    /// The errors of the array.
    pub fn turn(&self, volume: &Volume) -> Result<()> {
        match self.turn {
            Some(Knob::Granule(granule)) => volume.with(|it| it.set_granule(granule)),
            Some(Knob::CacheBytes(bytes)) => volume.set(|it| it.cache_bytes = bytes),
            Some(Knob::Deadline(deadline)) => volume.set(|it| it.deadline = deadline),
            Some(Knob::Rmw(level)) => {
                volume.with(|it| it.rules.rmw = level);
                Ok(())
            }
            // The other knobs concern background work, which this case does not run.
            _ => Ok(()),
        }
    }
}
