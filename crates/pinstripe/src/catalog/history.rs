//! `history`: every version of one path, and the times when the path did not exist.

use super::Catalog;
use pinstripe_base::error::Result;
use pinstripe_member::{Version, history_of, split_path};

impl Catalog {
    /// Returns the versions of a path: one list for each host with its sources, oldest version
    /// first.
    ///
    /// # Errors
    /// Fails when the catalog cannot be read.
    pub fn history(&self, path: &[u8]) -> Result<Vec<Vec<Version>>> {
        let (directory, name) = split_path(path);
        let mut all = Vec::new();
        for series in self.series()? {
            let Some(directory) = self.directory(series.id, directory)? else { continue };
            let mut found = Vec::new();
            self.versions_of(&series, directory, name, path, &mut |_, it| found.push(it))?;
            if !found.is_empty() {
                all.push(history_of(&series, found));
            }
        }
        Ok(all)
    }
}
