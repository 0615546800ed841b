"""The protobuf messages of HBase that we speak, as far as we use them.

Definitions of our own, a line each (what is indented goes on): protobuf's wire format knows field numbers and kinds
only, so a message that leaves out fields, or says optional for required, is understood by both sides, and fields that
a newer HBase adds are skipped. Classes are made from descriptors when the module is loaded: nothing is generated, and
no .proto file has to follow HBase's releases. (A codec of our own was the alternative. The runtime's is in C, and what
is hot does not pass through it: cells travel in cell blocks, `keyvalues.py`.)

A field is `name:kind=number`, `*` before it: repeated. Enums are uint32, which is the same on the wire.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "belvedere.hbase"

_DEFINITIONS = """
ServerName            host_name:string=1 port:uint32=2 start_code:uint64=3
TableName             namespace:bytes=1 qualifier:bytes=2
BytesPair             first:bytes=1 second:bytes=2
StringPair            name:string=1 value:string=2
NameBytes             name:string=1 value:bytes=2
FamilySchema          name:bytes=1 *attributes:BytesPair=2 *configuration:StringPair=3
TableSchema           table_name:TableName=1 *attributes:BytesPair=2 *families:FamilySchema=3
                      *configuration:StringPair=4
NamespaceDescriptor   name:bytes=1 *configuration:StringPair=2
RegionInfo            region_id:uint64=1 table_name:TableName=2 start_key:bytes=3 end_key:bytes=4 offline:bool=5
                      split:bool=6 replica_id:int32=7
RegionSpecifier       type:uint32=1 value:bytes=2
TimeRange             first:uint64=1 stop:uint64=2
FamilyTimeRange       family:bytes=1 time_range:TimeRange=2

UserInformation       effective_user:string=1 real_user:string=2
VersionInfo           version:string=1 url:string=2 revision:string=3 user:string=4 date:string=5
                      src_checksum:string=6 version_major:uint32=7 version_minor:uint32=8
ConnectionHeader      user_info:UserInformation=1 service_name:string=2 cell_block_codec_class:string=3
                      cell_block_compressor_class:string=4 version_info:VersionInfo=5
CellBlockMeta         length:uint32=1
ExceptionResponse     exception_class_name:string=1 stack_trace:string=2 hostname:string=3 port:int32=4
                      do_not_retry:bool=5 server_overloaded:bool=6
RequestHeader         call_id:uint32=1 method_name:string=3 request_param:bool=4 cell_block_meta:CellBlockMeta=5
                      priority:uint32=6 timeout:uint32=7
ResponseHeader        call_id:uint32=1 exception:ExceptionResponse=2 cell_block_meta:CellBlockMeta=3

Column                family:bytes=1 *qualifier:bytes=2
Filter                name:string=1 serialized_filter:bytes=2
ColumnRange           first:bytes=1 first_inclusive:bool=2 last:bytes=3 last_inclusive:bool=4
Get                   row:bytes=1 *column:Column=2 *attribute:NameBytes=3 filter:Filter=4 time_range:TimeRange=5
                      max_versions:uint32=6 cache_blocks:bool=7 store_limit:uint32=8 existence_only:bool=10
                      *family_time_range:FamilyTimeRange=13
Cell                  row:bytes=1 family:bytes=2 qualifier:bytes=3 timestamp:uint64=4 cell_type:uint32=5 value:bytes=6
                      tags:bytes=7
Result                *cell:Cell=1 associated_cell_count:int32=2 exists:bool=3 stale:bool=4 partial:bool=5
GetRequest            region:RegionSpecifier=1 get:Get=2
GetResponse           result:Result=1
Comparator            name:string=1 serialized_comparator:bytes=2
ByteArrayComparable   value:bytes=1
BinaryComparator      comparable:ByteArrayComparable=1
Condition             row:bytes=1 family:bytes=2 qualifier:bytes=3 compare_type:uint32=4 comparator:Comparator=5
                      time_range:TimeRange=6 filter:Filter=7
Mutation              row:bytes=1 mutate_type:uint32=2 *column_value:ColumnValue=3 timestamp:uint64=4
                      *attribute:NameBytes=5 durability:uint32=6 associated_cell_count:int32=8
ColumnValue           family:bytes=1 *qualifier_value:QualifierValue=2
QualifierValue        qualifier:bytes=1 value:bytes=2 timestamp:uint64=3 delete_type:uint32=4 tags:bytes=5
MutateRequest         region:RegionSpecifier=1 mutation:Mutation=2 condition:Condition=3
MutateResponse        result:Result=1 processed:bool=2
Scan                  *column:Column=1 *attribute:NameBytes=2 start_row:bytes=3 stop_row:bytes=4 filter:Filter=5
                      time_range:TimeRange=6 max_versions:uint32=7 cache_blocks:bool=8 batch_size:uint32=9
                      max_result_size:uint64=10 store_limit:uint32=11 reversed:bool=15 caching:uint32=17
                      allow_partial_results:bool=18 *family_time_range:FamilyTimeRange=19
                      mvcc_read_point:uint64=20 include_start_row:bool=21
                      include_stop_row:bool=22 read_type:uint32=23
ScanRequest           region:RegionSpecifier=1 scan:Scan=2 scanner_id:uint64=3 number_of_rows:uint32=4
                      close_scanner:bool=5 next_call_seq:uint64=6 client_handles_partials:bool=7
                      client_handles_heartbeats:bool=8 renew:bool=10 limit_of_rows:uint32=11
ScanResponse          *cells_per_result:uint32=1 scanner_id:uint64=2 more_results:bool=3 ttl:uint32=4
                      *results:Result=5 stale:bool=6 *partial_flag_per_result:bool=7 more_results_in_region:bool=8
                      heartbeat_message:bool=9 mvcc_read_point:uint64=11
Action                index:uint32=1 mutation:Mutation=2 get:Get=3
RegionAction          region:RegionSpecifier=1 atomic:bool=2 *action:Action=3 condition:Condition=4
MultiRequest          *region_action:RegionAction=1
ResultOrException     index:uint32=1 result:Result=2 exception:NameBytes=3
RegionActionResult    *results:ResultOrException=1 exception:NameBytes=2 processed:bool=3
MultiResponse         *region_results:RegionActionResult=1 processed:bool=2

ForeignException      source:string=1 generic_exception:GenericException=2
GenericException      class_name:string=1 message:string=2 error_info:bytes=3
ProcedureRequest      proc_id:uint64=1
ProcedureAnswer       proc_id:uint64=1
ProcedureResult       state:uint32=1 submitted_time:uint64=2 last_update:uint64=3 result:bytes=4
                      exception:ForeignException=5
CreateTableRequest    table_schema:TableSchema=1 *split_keys:bytes=2 nonce_group:uint64=3 nonce:uint64=4
TableRequest          table_name:TableName=1 nonce_group:uint64=2 nonce:uint64=3
ModifyTableRequest    table_name:TableName=1 table_schema:TableSchema=2 nonce_group:uint64=3 nonce:uint64=4
                      reopen_regions:bool=5
ModifyColumnRequest   table_name:TableName=1 family:FamilySchema=2 nonce_group:uint64=3 nonce:uint64=4
DescriptorsRequest    *table_names:TableName=1 regex:string=2 include_sys_tables:bool=3 namespace:string=4
DescriptorsAnswer     *table_schema:TableSchema=1
TableNamesRequest     regex:string=1 include_sys_tables:bool=2 namespace:string=3
TableNamesAnswer      *table_names:TableName=1
TableState            state:uint32=1
TableStateAnswer      table_state:TableState=1
CreateNamespaceRequest  descriptor:NamespaceDescriptor=1 nonce_group:uint64=2 nonce:uint64=3
DeleteNamespaceRequest  name:string=1 nonce_group:uint64=2 nonce:uint64=3
NamespaceRequest      name:string=1
NamespaceAnswer       descriptor:NamespaceDescriptor=1
NamespacesAnswer      *names:string=1
MoveRegionRequest     region:RegionSpecifier=1 dest_server_name:ServerName=2
SplitRegionRequest    region_info:RegionInfo=1 split_row:bytes=2 nonce_group:uint64=3 nonce:uint64=4
MergeRegionsRequest   *region:RegionSpecifier=1 forcible:bool=3 nonce_group:uint64=4 nonce:uint64=5
SwitchRequest         on:bool=1 synchronous:bool=2
Empty
ClusterStatusRequest  *options:uint32=1
VersionContent        version:string=1
ClusterId             cluster_id:string=1
RegionLoad            region_specifier:RegionSpecifier=1 storefiles:uint32=3 storefile_size_mb:uint32=5
                      mem_store_size_mb:uint32=6
ShippingLoad          peer_id:string=1 log_files:uint32=3 last_shipped_ms:uint64=4 lag_ms:uint64=5
                      recovered:bool=8
ServerLoad            *region_loads:RegionLoad=5 *shipping:ShippingLoad=10
                      report_end_time:uint64=8 info_server_port:uint32=9
LiveServer            server:ServerName=1 server_load:ServerLoad=2
RegionInTransition    spec:RegionSpecifier=1
ClusterStatus         hbase_version:VersionContent=1 *live_servers:LiveServer=2 *dead_servers:ServerName=3
                      *regions_in_transition:RegionInTransition=4 cluster_id:ClusterId=5 master:ServerName=7
ClusterStatusAnswer   cluster_status:ClusterStatus=1

TableFamilies         table_name:TableName=1 *families:bytes=2
ReplicationPeer       clusterkey:string=1 endpoint:string=2 *data:BytesPair=3 *configuration:StringPair=4
                      *table_cfs:TableFamilies=5 *namespaces:bytes=6 bandwidth:int64=7 replicate_all:bool=8
                      *exclude_table_cfs:TableFamilies=9 *exclude_namespaces:bytes=10 serial:bool=11
ReplicationState      state:uint32=1
PeerDescription       id:string=1 state:ReplicationState=2 config:ReplicationPeer=3
AddPeerRequest        peer_id:string=1 peer_config:ReplicationPeer=2 peer_state:ReplicationState=3
UpdatePeerRequest     peer_id:string=1 peer_config:ReplicationPeer=2
PeerRequest           peer_id:string=1
PeersRequest          regex:string=1
PeersAnswer           *peer_desc:PeerDescription=1

RegionInfoRequest     region:RegionSpecifier=1 compaction_state:bool=2
RegionInfoAnswer      region_info:RegionInfo=1 compaction_state:uint32=2 splittable:bool=4 mergeable:bool=5
StoreFilesRequest     region:RegionSpecifier=1 *family:bytes=2
StoreFilesAnswer      *store_file:string=1
FlushRequest          region:RegionSpecifier=1 if_older_than_ts:uint64=2 write_flush_wal_marker:bool=3 family:bytes=4
FlushAnswer           last_flush_time:uint64=1 flushed:bool=2
CompactRequest        region:RegionSpecifier=1 major:bool=2 family:bytes=3

MasterNode            master:ServerName=1 rpc_version:uint32=2
MetaNode              server:ServerName=1 rpc_version:uint32=2 state:uint32=3
"""

_KINDS: Final = {
    name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in "bytes string bool uint32 int32 uint64 int64".split()
}


def define(definitions: str, file: str) -> dict[str, Any]:
    """Classes by name. Messages may name those of this module, and those that come before or after them."""
    described = descriptor_pb2.FileDescriptorProto(name=file, package=_PACKAGE, syntax="proto2")
    if file != _OWN_FILE:
        described.dependency.append(_OWN_FILE)
    names = []
    for line in filter(str.strip, definitions.splitlines()):
        fields = line.split()
        if not line.startswith(" "):
            names.append(fields.pop(0))
            message = described.message_type.add(name=names[-1])
        for field in fields:
            _add_field(message, field)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(described.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in names}


def _add_field(message: Any, text: str) -> None:
    name, _, rest = text.lstrip("*").partition(":")
    kind, _, number = rest.partition("=")
    proto = descriptor_pb2.FieldDescriptorProto
    field = message.field.add(
        name=name, number=int(number), label=proto.LABEL_REPEATED if text[0] == "*" else proto.LABEL_OPTIONAL
    )
    if kind in _KINDS:
        field.type = _KINDS[kind]
    else:
        field.type, field.type_name = proto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"


_OWN_FILE = "belvedere/hbase.proto"
_CLASSES = define(_DEFINITIONS, _OWN_FILE)


def __getattr__(name: str) -> Any:
    try:
        return _CLASSES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
