//! How long the parts of a test run took.

use std::time::Instant;

/// The seconds of each part, in the order in which the parts ended.
#[derive(Default)]
pub(super) struct Times(Vec<(String, f64)>);

impl Times {
    /// Runs a part and records how long it took.
    pub fn of<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.note(name, began.elapsed().as_secs_f64());
        done
    }

    /// Records how long a part took.
    pub fn note(&mut self, name: &str, seconds: f64) {
        self.0.push((name.to_owned(), seconds));
    }

    /// Prints them.
    pub fn print(&self) {
        println!("\nseconds of each part:");
        self.0.iter().for_each(|(name, seconds)| println!("{seconds:8.1}  {name}"));
    }
}
