"""Who has spent how much, from the view `spend` of a shop into the table `loyal` of another database."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from belvedere.spark.source.data_source import BelvedereSource

spark = SparkSession.active()
spark.dataSource.register(BelvedereSource)
SHOP, LOYALTY = os.environ["SHOP_DATABASE"], os.environ["LOYALTY_DATABASE"]


@dp.materialized_view
def big_spenders() -> DataFrame:
    """As a batch: the rows of the view, as they are when the pipeline runs."""
    return spark.read.format("belvedere").option("database", SHOP).load("spend").where("total >= 100")


dp.create_sink("loyal", "belvedere", {"database": LOYALTY, "relation": "loyal"})


@dp.append_flow(target="loyal")
def follow_spend() -> DataFrame:
    """As a stream: each change of the view, once, also if the pipeline is run again."""
    source = spark.readStream.format("belvedere").option("database", SHOP)
    changes = source.option("content", "changes").option("starting", "rows").load("spend")
    return changes.where("_weight = 1").select("customer", "total", changes["_epoch"].alias("epoch"))
