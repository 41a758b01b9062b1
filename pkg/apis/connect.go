package apis

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sailplane-dev/sailplane/pkg/internal/stream"
)

// connection is a sub-resource that an http.Handler serves.
type connection struct {
	methods []string
	// create says that every method takes the verb create: a WebSocket begins with a GET.
	create bool
	// subpath is the JSON field of the options that gets the path below the sub-resource.
	subpath string
	options func() runtime.Object
	handler func(ctx context.Context, obj, options runtime.Object, answer rest.Responder) (http.Handler, error)
}

// addConnection adds the sub-resource.
func (d *Definition) addConnection(name string, c connection) {
	d.stream(name)
	if c.create {
		d.consoles = append(d.consoles, name)
	}
	d.bodies = append(d.bodies, optionsOf(name, c.options()))
	d.addSubresource(name, func(store *registry.Store, s strategy) rest.Storage {
		return &connectStorage{connection: c, store: store, authorizer: s.authorizer}
	})
}

// connectStorage serves a connection. Admission sees its options, as a CONNECT.
type connectStorage struct {
	connection
	store      *registry.Store
	authorizer authorizer.Authorizer
	places     stream.Places
}

var _ rest.Connecter = &connectStorage{}

// New implements rest.Storage: the kind of the sub-resource is that of the options.
func (s *connectStorage) New() runtime.Object { return s.options() }

// Destroy does nothing: the resource destroys what it shares.
func (s *connectStorage) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (s *connectStorage) ConnectMethods() []string { return s.methods }

// NewConnectOptions implements rest.Connecter.
func (s *connectStorage) NewConnectOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return s.options(), s.subpath != "", s.subpath
}

// Connect implements rest.Connecter.
func (s *connectStorage) Connect(ctx context.Context, name string, options runtime.Object, answer rest.Responder) (http.Handler, error) {
	if s.create {
		if err := mayCreate(ctx, s.authorizer); err != nil {
			return nil, err
		}
	}
	obj, err := s.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	h, err := s.handler(ctx, obj, options, answer)
	if err != nil {
		return nil, err
	}
	who, _ := request.UserFrom(ctx)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, err := s.places.Take(who)
		if err != nil {
			answer.Error(err)
			return
		}
		defer leave()
		h.ServeHTTP(w, r)
	}), nil
}

// mayCreate returns an error unless the caller may create the sub-resource, whatever the
// verb of the request is: to open a console is never just to read. Kubernetes asks the same
// since 1.35 (AuthorizePodWebsocketUpgradeCreatePermission).
func mayCreate(ctx context.Context, a authorizer.Authorizer) error {
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("who asks for the stream is unknown: %w", err))
	}
	if attributes.GetVerb() == "create" {
		return nil // the request was authorized
	}
	if a == nil {
		return apierrors.NewInternalError(errors.New("nothing says who may open the stream: the plane has no authorizer"))
	}
	decision, reason, err := a.Authorize(ctx, toCreate{attributes})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("may %s create the stream: %w", attributes.GetUser().GetName(), err))
	}
	info, _ := request.RequestInfoFrom(ctx)
	resource := info.Resource + "/" + info.Subresource
	return apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: resource}, info.Name,
		fmt.Errorf("user %q cannot create resource %q: a stream needs the verb create, also for a GET: %s",
			attributes.GetUser().GetName(), resource, reason))
}

// toCreate is a request with the verb create.
type toCreate struct{ authorizer.Attributes }

// GetVerb implements authorizer.Attributes.
func (toCreate) GetVerb() string { return "create" }
