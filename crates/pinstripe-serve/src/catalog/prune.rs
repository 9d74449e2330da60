//! Removes snapshots, and every row that belongs to no other snapshot.

use std::collections::BTreeSet;

use pinstripe_base::error::Result;
use pinstripe_base::id::SnapshotId;
use pinstripe_member::encode_names;
use tokio_postgres::Row;

use super::SharedTables;
use super::connection::Link;
use super::copy::CopyRows;
use super::schema::directories_of;

/// The number of names in one block that is rebuilt.
const BLOCK_NAMES: usize = 1 << 15;

impl SharedTables {
    /// Removes snapshots. Returns how many the catalog had.
    ///
    /// # Errors
    /// Fails with the errors of the database.
    pub async fn let_go(&self, gone: &[SnapshotId]) -> Result<u64> {
        let _turn = self.loader().await?;
        let (link, schema) = (self.pool.take().await?, self.pool.schema());
        let ids: Vec<&[u8]> = gone.iter().map(|id| &id.0[..]).collect();
        link.batch("BEGIN").await?;
        // Loaders lock their series first, too.
        let sql = format!(
            "SELECT id FROM {schema}.series WHERE id IN
               (SELECT series FROM {schema}.snapshots WHERE id = ANY($1)) ORDER BY id FOR UPDATE"
        );
        link.query(&sql, &[&ids]).await?;
        let sql = format!("DELETE FROM {schema}.snapshots WHERE id = ANY($1) RETURNING series");
        let removed = link.query(&sql, &[&ids]).await?;
        let touched: BTreeSet<i32> = removed.iter().map(|row| row.get(0)).collect();
        for series in touched {
            prune(&link, schema, series).await?;
        }
        link.batch("COMMIT").await?;
        link.give_back();
        Ok(removed.len() as u64)
    }

    /// Removes everything. Returns the number of snapshots that the catalog had.
    ///
    /// # Errors
    /// Fails with the errors of the database.
    pub async fn clear(&self) -> Result<u64> {
        let _turn = self.loader().await?;
        let (link, schema) = (self.pool.take().await?, self.pool.schema());
        let sql = format!("SELECT count(*) FROM {schema}.snapshots");
        let count = link.query(&sql, &[]).await?;
        // The numbers of series continue, so that blocks in memory are not taken for those of others.
        link.batch(&format!(
            "TRUNCATE {schema}.series, {schema}.snapshots, {schema}.dirs, {schema}.versions,
               {schema}.names CONTINUE IDENTITY"
        ))
        .await?;
        link.give_back();
        Ok(count.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
    }
}

async fn prune(link: &Link<'_>, schema: &str, series: i32) -> Result<()> {
    let (first, last) = directories_of(series);
    // The newest remaining snapshot is the head again: its versions become open, later ones go.
    let head = format!("SELECT max(ordinal) FROM {schema}.snapshots WHERE series = $1");
    let head = link.query(&head, &[&series]).await?;
    let Some(head) = head.first().and_then(|row| row.get::<_, Option<i32>>(0)) else {
        for table in ["versions WHERE dir", "dirs WHERE id"] {
            let sql = format!("DELETE FROM {schema}.{table} BETWEEN $1 AND $2");
            link.execute(&sql, &[&first, &last]).await?;
        }
        for table in ["names WHERE series", "series WHERE id"] {
            link.execute(&format!("DELETE FROM {schema}.{table} = $1"), &[&series]).await?;
        }
        return Ok(());
    };
    let sql = format!(
        "UPDATE {schema}.versions SET last = NULL
         WHERE dir BETWEEN $1 AND $2 AND last >= $3 AND first <= $3"
    );
    link.execute(&sql, &[&first, &last, &head]).await?;
    let sql = format!(
        "DELETE FROM {schema}.versions v WHERE dir BETWEEN $1 AND $2 AND NOT EXISTS (
           SELECT 1 FROM {schema}.snapshots s WHERE s.series = $3
           AND s.ordinal BETWEEN v.first AND coalesce(v.last, 2147483647))"
    );
    let dropped = link.execute(&sql, &[&first, &last, &series]).await?;
    let sql = format!(
        "UPDATE {schema}.series SET head = $2, versions = greatest(versions - $3, 0) WHERE id = $1"
    );
    link.execute(&sql, &[&series, &head, &(dropped as i64)]).await?;
    if dropped == 0 {
        return Ok(());
    }
    let sql = format!(
        "DELETE FROM {schema}.dirs d WHERE id BETWEEN $1 AND $2
         AND NOT EXISTS (SELECT 1 FROM {schema}.versions v WHERE v.dir = d.id)"
    );
    link.execute(&sql, &[&first, &last]).await?;
    name_again(link, schema, series).await
}

/// Rebuilds the blocks of names of a series from its rows, a part at a time.
async fn name_again(link: &Link<'_>, schema: &str, series: i32) -> Result<()> {
    link.execute(&format!("DELETE FROM {schema}.names WHERE series = $1"), &[&series]).await?;
    let (first, last) = directories_of(series);
    let next = format!(
        "SELECT DISTINCT dir, name FROM {schema}.versions
         WHERE dir BETWEEN $1 AND $2 AND (dir, name) > ($3, $4) ORDER BY dir, name LIMIT $5"
    );
    let (mut after, mut blocks): (Option<Row>, i32) = (None, 0);
    loop {
        let (dir, name) = match &after {
            Some(row) => (row.get::<_, i64>(0), row.get::<_, &[u8]>(1)),
            None => (0, &b""[..]),
        };
        let limit = BLOCK_NAMES as i64;
        let mut rows = link.query(&next, &[&first, &last, &dir, &name, &limit]).await?;
        if rows.is_empty() {
            break;
        }
        let mut new: Vec<(&[u8], i64)> = rows.iter().map(|row| (row.get(1), row.get(0))).collect();
        let block = encode_names(&mut new);
        let mut copied = CopyRows::new(block.len() + 32);
        copied.row(3).int(series).int(blocks).field(&block);
        let sql = format!("COPY {schema}.names FROM STDIN BINARY");
        link.copy(&sql, copied.finish().unwrap_or_default()).await?;
        blocks += 1;
        after = rows.pop();
    }
    let sql = format!(
        "UPDATE {schema}.series SET blocks = $2, generation = generation + 1 WHERE id = $1"
    );
    link.execute(&sql, &[&series, &blocks]).await.map(drop)
}
