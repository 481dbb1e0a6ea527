//! The tests that object_store has for its own stores, of both versions. Left out are those for traits that
//! only some stores implement (`MultipartStore`, `PaginatedListStore`).

/// Declares the tests for one version, whose module in the crate has this name.
macro_rules! conforms {
    ($version:ident) => {
        mod $version {
            use braid_object_store::$version::object_store::{Error, integration as theirs};

            use crate::cluster::Cluster;

            #[tokio::test(flavor = "multi_thread")]
            async fn objects_are_put_got_listed_and_deleted() {
                let cluster = Cluster::start().await;
                let store = cluster.store().await;
                theirs::put_get_delete_list(&store).await;
                theirs::list_with_offset_exclusivity(&store).await;
                theirs::list_uses_directories_correctly(&store).await;
                theirs::list_with_delimiter(&store).await;
                let missing = theirs::get_nonexistent_object(&store, None).await;
                assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn options_are_heeded() {
                let cluster = Cluster::start().await;
                let store = cluster.store().await;
                theirs::get_opts(&store).await;
                theirs::put_opts(&store, true).await;
                theirs::put_get_attributes(&store).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn objects_are_copied_and_renamed() {
                let cluster = Cluster::start().await;
                let store = cluster.store().await;
                theirs::rename_and_copy(&store).await;
                theirs::copy_if_not_exists(&store).await;
                theirs::copy_rename_nonexistent_object(&store).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn objects_are_uploaded_in_parts() {
                let cluster = Cluster::start().await;
                let store = cluster.store().await;
                theirs::stream_get(&store).await;
                theirs::multipart_out_of_order(&store).await;
                theirs::multipart_race_condition(&store, true).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_directory_of_a_volume_is_a_store_too() {
                let cluster = Cluster::start().await;
                let store = cluster.store().await.with_prefix("a/b c").expect("a good prefix");
                theirs::put_get_delete_list(&store).await;
                theirs::rename_and_copy(&store).await;
            }
        }
    };
}

conforms!(v0_13);
conforms!(v0_14);
