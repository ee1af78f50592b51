/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  The differences between the supported majors of PostgreSQL.
 *
 * One block for each change of an API, headed by the major that made it.  Who
 * uses a macro includes what the server's function of it needs.
 * No other file asks for a version.
 *
 *-------------------------------------------------------------------------
 */
#ifndef LE_COMPAT_H
#define LE_COMPAT_H

#include "access/tableam.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "leader_election supports PostgreSQL 15 to 18"
#endif

/*
 * 15.13, 16.9, 17.5: whether synchronous standbys are wanted is kept as bits,
 * one of them "is known"; before as a bool in the same place.  A library
 * meets all minor releases of its major, whichever it was built for.
 */
#ifdef SYNC_STANDBY_DEFINED
#define LE_SYNC_STATUS			sync_standbys_status
#else
#define LE_SYNC_STATUS			sync_standbys_defined
#endif
#define LE_SYNC_BIT_KNOWN		(1 << 0)
#define LE_SYNC_BIT_DEFINED		(1 << 1)
#if PG_VERSION_NUM >= 180000
#define LE_SYNC_BITS_SINCE		180000
#elif PG_VERSION_NUM >= 170000
#define LE_SYNC_BITS_SINCE		170005
#elif PG_VERSION_NUM >= 160000
#define LE_SYNC_BITS_SINCE		160009
#else
#define LE_SYNC_BITS_SINCE		150013
#endif

/* 16: table_tuple_update and ExecInsertIndexTuples know summarizing indexes */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
typedef TU_UpdateIndexes LeUpdateIndexes;
#define LE_UPDATE_NO_INDEXES	TU_None
#define le_insert_index_tuples(rri, slot, estate, indexes) \
	ExecInsertIndexTuples(rri, slot, estate, false, false, NULL, NIL, \
						  (indexes) == TU_Summarizing)
#define LE_UPDATE_ALL_INDEXES	TU_All
#else
typedef bool LeUpdateIndexes;
#define LE_UPDATE_NO_INDEXES	false
#define LE_UPDATE_ALL_INDEXES	true
#define le_insert_index_tuples(rri, slot, estate, indexes) \
	ExecInsertIndexTuples(rri, slot, estate, false, false, NULL, NIL)
#endif

/* 16: what a check hook passes on lives in the memory of the GUC machinery */
#if PG_VERSION_NUM >= 160000
#define le_guc_malloc(size)	guc_malloc(LOG, size)
#define le_guc_free(ptr)	guc_free(ptr)
#else
#define le_guc_malloc(size)	malloc(size)
#define le_guc_free(ptr)	free(ptr)
#endif

/* 16: object_aclcheck replaced the functions of each object class */
#if PG_VERSION_NUM < 160000
#define object_ownercheck(classid, objectid, roleid) \
	pg_class_ownercheck(objectid, roleid)
#endif

/* 17: named wait events, and a registry of shared memory without preload */
#if PG_VERSION_NUM >= 170000
#define le_wait_event_new(name)	WaitEventExtensionNew(name)
#define LE_HAVE_DSM_REGISTRY 1
#else
#define le_wait_event_new(name)	PG_WAIT_EXTENSION
#endif

/* 17: LockHeldByMe can be asked for stronger modes too */
#if PG_VERSION_NUM >= 170000
#define le_lock_held_by_me(tag, mode)	LockHeldByMe(tag, mode, false)
#else
#define le_lock_held_by_me(tag, mode)	LockHeldByMe(tag, mode)
#endif

/* 17: virtual transaction ids name a ProcNumber instead of a backend id */
#if PG_VERSION_NUM >= 170000
#include "storage/procarray.h"
#define le_vxid_proc(vxid)		ProcNumberGetProc((vxid).procNumber)
#else
#include "storage/sinvaladt.h"
#define le_vxid_proc(vxid)		BackendIdGetProc((vxid).backendId)
#endif

/* 18: index_beginscan counts what it does; a deferrable key may be primary */
#if PG_VERSION_NUM >= 180000
#define le_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#define le_primary_key_index(rel)	RelationGetPrimaryKeyIndex(rel, false)
#else
#define le_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#define le_primary_key_index(rel)	RelationGetPrimaryKeyIndex(rel)
#endif

/* 18: PG_MODULE_MAGIC_EXT carries a name and a version */
#if PG_VERSION_NUM >= 180000
#define LE_MODULE_MAGIC	PG_MODULE_MAGIC_EXT(.name = "leader_election", .version = "1.0")
#else
#define LE_MODULE_MAGIC	PG_MODULE_MAGIC
#endif

/*
 * Is the client still there?  Declared in libpq/libpq.h, which takes in headers
 * of GSSAPI that do not come with the server's own.
 */
extern bool pq_check_connection(void);

#endif							/* LE_COMPAT_H */
