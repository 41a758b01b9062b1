// Package etcd keeps a server's objects in etcd: one in this process
// ([Embedded]) or a cluster somewhere else ([Cluster]).
package etcd
