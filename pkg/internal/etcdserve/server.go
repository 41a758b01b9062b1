package etcdserve

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

const (
	// version is the etcd version in the status: API servers ask for progress, and rely
	// on the answers, from 3.4.25 on.
	version = "3.6.0"
	// A client that is gone is found by pings; its own may come this often, as with etcd.
	pingEvery, pingTimeout, pingsAllowed = 30 * time.Second, 10 * time.Second, 5 * time.Second
	// maxStreams is how many calls one connection may have open, watches among them, and
	// maxMessage how large a message may be: that of a request, and what gRPC adds.
	maxStreams = 1000
	maxMessage = maxRequestBytes + 512<<10
	// connectTime is how long a connection may take to become one.
	connectTime = 20 * time.Second
)

// Views finds the view of who calls.
type Views func(context.Context) (*View, error)

// Options are what a server may be told beside its views.
type Options struct {
	// Credentials of the connections. Nil: those that are served have none.
	Credentials credentials.TransportCredentials
	// Endpoints are the client URLs that a list of members shows.
	Endpoints func() []string
	// ConnectionAge is when clients are asked to connect anew, and so to prove again who
	// they are. A watch ends at that age, too, and goes on with the new connection: the old
	// one would last as long as it. 0: never.
	ConnectionAge time.Duration
	// Begin is asked before anything is done for a call, whose context ends with it, and its error ends the call. Asked
	// is told of each request in a stream of watches. They must not wait. Nil: nobody counts them.
	Begin func(context.Context) error
	Asked func(context.Context)
}

// Server serves views until it is ended.
type Server struct {
	*grpc.Server
	ending chan struct{}
	once   sync.Once
}

// New returns a server that nothing is served on yet.
func New(views Views, o Options) *Server {
	alive := keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout}
	if o.ConnectionAge > 0 {
		alive.MaxConnectionAge = o.ConnectionAge
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(connectTime),
		grpc.KeepaliveParams(alive), grpc.UnaryInterceptor(leave), grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsAllowed, PermitWithoutStream: true}),
	}
	if o.Begin != nil {
		options = append(options, grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
			return ctx, o.Begin(ctx)
		}))
	}
	if o.Asked == nil {
		o.Asked = func(context.Context) {}
	}
	if o.Credentials != nil {
		options = append(options, grpc.Creds(o.Credentials))
	}
	s := &Server{Server: grpc.NewServer(options...), ending: make(chan struct{})}
	pb.RegisterKVServer(s, &kv{views: views})
	pb.RegisterWatchServer(s, &watching{views: views, asked: o.Asked, ending: s.ending, age: o.ConnectionAge})
	pb.RegisterLeaseServer(s, &lease{views: views})
	pb.RegisterMaintenanceServer(s, &maintenance{views: views})
	pb.RegisterClusterServer(s, &cluster{views: views, endpoints: o.Endpoints})
	return s
}

// End has calls go on for some time, ends watches, and returns when all have ended. Clients go
// on at another server, or when there is one here again.
func (s *Server) End(patience time.Duration) {
	s.once.Do(func() { close(s.ending) })
	hard := time.AfterFunc(patience, s.Stop)
	defer hard.Stop()
	s.GracefulStop()
}

// lease is etcd's Lease service.
type lease struct {
	pb.UnimplementedLeaseServer
	views Views
}

// LeaseGrant implements the etcd Lease service.
func (s *lease) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	v, err := s.views(ctx)
	if err != nil {
		return nil, err
	}
	if r.ID != 0 {
		return nil, unsupported("a lease with a chosen ID")
	}
	id, err := v.Keeper.Grant(ctx, r.TTL)
	if err != nil {
		return nil, rpcError(err)
	}
	return &pb.LeaseGrantResponse{Header: v.at(0), ID: id, TTL: r.TTL}, nil
}

// maintenance is etcd's Maintenance service.
type maintenance struct {
	pb.UnimplementedMaintenanceServer
	views Views
}

// Status implements the etcd Maintenance service.
func (s *maintenance) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	v, err := s.views(ctx)
	if err != nil {
		return nil, err
	}
	size, err := v.Keeper.Size(ctx)
	if err != nil {
		return nil, rpcError(err)
	}
	current, err := v.current(ctx)
	if err != nil {
		return nil, rpcError(err)
	}
	return &pb.StatusResponse{
		Header: v.at(current), Version: version, Leader: v.ID, RaftTerm: 1, DbSize: size, DbSizeInUse: size,
	}, nil
}

// cluster is etcd's Cluster service.
type cluster struct {
	pb.UnimplementedClusterServer
	views     Views
	endpoints func() []string
}

// MemberList implements the etcd Cluster service: to a client there is one member.
func (s *cluster) MemberList(ctx context.Context, _ *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	v, err := s.views(ctx)
	if err != nil {
		return nil, err
	}
	one := &pb.Member{ID: v.ID, Name: "sailplane"}
	if s.endpoints != nil {
		one.ClientURLs = s.endpoints()
	}
	return &pb.MemberListResponse{Header: v.at(0), Members: []*pb.Member{one}}, nil
}

// rpcError returns the error that etcd's client turns into its own again.
func rpcError(err error) error {
	var known rpctypes.EtcdError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return status.Error(known.Code(), known.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case status.Code(err) != codes.Unknown:
		return err
	}
	return status.Error(codes.Unavailable, err.Error())
}

// Everything is the keeper of a whole storage, whose client may do everything.
type Everything struct {
	Client *clientv3.Client
}

var _ Keeper = Everything{}

// Read implements Keeper.
func (Everything) Read(context.Context, Reading) (func(int64), error) { return func(int64) {}, nil }

// Write implements Keeper.
func (Everything) Write(context.Context, Growth) (func(int64), error) { return func(int64) {}, nil }

// Watch implements Keeper.
func (Everything) Watch() (func(), error) { return func() {}, nil }

// Grant implements Keeper.
func (e Everything) Grant(ctx context.Context, ttl int64) (int64, error) {
	r, err := e.Client.Grant(ctx, ttl)
	if err != nil {
		return 0, err
	}
	return int64(r.ID), nil
}

// Lease implements Keeper.
func (Everything) Lease(_ context.Context, id int64) (clientv3.LeaseID, error) {
	return clientv3.LeaseID(id), nil
}

// Compact implements Keeper.
func (e Everything) Compact(ctx context.Context, revision int64) error {
	_, err := e.Client.Compact(ctx, revision)
	return err
}

// Compacted implements Keeper: the storage itself refuses what it has no more.
func (Everything) Compacted() int64 { return 0 }

// Size implements Keeper.
func (e Everything) Size(ctx context.Context) (int64, error) {
	var endpoint string
	if all := e.Client.Endpoints(); len(all) > 0 {
		endpoint = all[0]
	}
	r, err := e.Client.Status(ctx, endpoint)
	if err != nil {
		return 0, err
	}
	return r.DbSize, nil
}
