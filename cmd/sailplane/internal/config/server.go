package config

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
)

// The version and the kind of the file.
const (
	APIVersion = "sailplane.dev/v1alpha1"
	Kind       = "Server"
)

// Server is everything that can be said of a server. The file server.yaml of this
// package says what each field means, and its default.
type Server struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	Listen            string   `json:"listen"`
	Advertise         []string `json:"advertise"`
	DataDir           string   `json:"dataDir"`
	Kubeconfig        string   `json:"kubeconfig"`
	Resources         []string `json:"resources"`
	CRDs              string   `json:"crds"`
	GarbageCollection bool     `json:"garbageCollection"`

	Storage        Storage        `json:"storage"`
	Serving        Serving        `json:"serving"`
	Authentication Authentication `json:"authentication"`
	Authorization  Authorization  `json:"authorization"`
	Admission      Admission      `json:"admission"`
	Services       Services       `json:"services"`
	Aggregation    Aggregation    `json:"aggregation"`
	Audit          Audit          `json:"audit"`
	Encryption     Encryption     `json:"encryption"`
	Backup         Backup         `json:"backup"`
	StorageAPI     StorageAPI     `json:"storageAPI"`
	Limits         Limits         `json:"limits"`
	Tracing        Tracing        `json:"tracing"`
	Log            Log            `json:"log"`
	Profiling      bool           `json:"profiling"`
}

// Storage says where objects are kept.
type Storage struct {
	URL          string            `json:"url"`
	Prefix       string            `json:"prefix"`
	History      metav1.Duration   `json:"history"`
	HistoryLimit resource.Quantity `json:"historyLimit"`
	Quota        resource.Quantity `json:"quota"`
	CAFile       string            `json:"caFile"`
	CertFile     string            `json:"certFile"`
	KeyFile      string            `json:"keyFile"`
	PasswordFile string            `json:"passwordFile"`
	Connections  int               `json:"connections"`
	PollInterval metav1.Duration   `json:"pollInterval"`
	ShareKeyFile string            `json:"shareKeyFile"`
}

// Serving says how the server proves itself, and how it stops.
type Serving struct {
	CertFile     string          `json:"certFile"`
	KeyFile      string          `json:"keyFile"`
	Certificates []Certificate   `json:"certificates"`
	Drain        metav1.Duration `json:"drain"`
}

// Certificate is a serving certificate with its key.
type Certificate struct {
	CertFile string   `json:"certFile"`
	KeyFile  string   `json:"keyFile"`
	Names    []string `json:"names"`
}

// Authentication says who may log in, and how.
type Authentication struct {
	AnonymousPaths      []string                       `json:"anonymousPaths"`
	ClientCAFile        string                         `json:"clientCAFile"`
	ClientCAUsers       []string                       `json:"clientCAUsers"`
	ClientCAGroups      []string                       `json:"clientCAGroups"`
	ClientCARevokedFile string                         `json:"clientCARevokedFile"`
	TokenFile           string                         `json:"tokenFile"`
	JWT                 []apiserverv1.JWTAuthenticator `json:"jwt"`
	ConfigFile          string                         `json:"configFile"`
	Webhook             TokenWebhook                   `json:"webhook"`
	Proxy               Proxy                          `json:"proxy"`
	ServiceAccounts     ServiceAccounts                `json:"serviceAccounts"`
}

// TokenWebhook asks another server whose token it is.
type TokenWebhook struct {
	ConfigFile string          `json:"configFile"`
	CacheTTL   metav1.Duration `json:"cacheTTL"`
}

// Proxy believes a front proxy.
type Proxy struct {
	ClientCAFile        string   `json:"clientCAFile"`
	AllowedNames        []string `json:"allowedNames"`
	UsernameHeaders     []string `json:"usernameHeaders"`
	GroupHeaders        []string `json:"groupHeaders"`
	UIDHeaders          []string `json:"uidHeaders"`
	ExtraHeaderPrefixes []string `json:"extraHeaderPrefixes"`
}

// ServiceAccounts says how their tokens are made.
type ServiceAccounts struct {
	Issuer             string          `json:"issuer"`
	SigningKeyFile     string          `json:"signingKeyFile"`
	Audiences          []string        `json:"audiences"`
	MaxTokenExpiration metav1.Duration `json:"maxTokenExpiration"`
}

// Authorization says who may do what.
type Authorization struct {
	Modes             []string                              `json:"modes"`
	WebhookConfigFile string                                `json:"webhookConfigFile"`
	Authorizers       []apiserverv1.AuthorizerConfiguration `json:"authorizers"`
	ConfigFile        string                                `json:"configFile"`
	FilteredLists     []string                              `json:"filteredLists"`
}

// Admission says what a write passes.
type Admission struct {
	Enable   []string `json:"enable"`
	Disable  []string `json:"disable"`
	Webhooks Webhooks `json:"webhooks"`
}

// Webhooks are those for admission and for conversion.
type Webhooks struct {
	Deny       []string `json:"deny"`
	Allow      []string `json:"allow"`
	ConfigFile string   `json:"configFile"`
}

// Services says what Services get, and where those are that something asks.
type Services struct {
	ClusterIPs string    `json:"clusterIPs"`
	NodePorts  string    `json:"nodePorts"`
	Addresses  []Address `json:"addresses"`
}

// Address is where a Service runs.
type Address struct {
	Service string `json:"service"`
	Address string `json:"address"`
}

// Aggregation names the API servers that requests are handed to.
type Aggregation struct {
	Servers  []AggregatedServer `json:"servers"`
	Patience metav1.Duration    `json:"patience"`
}

// AggregatedServer is an API server behind this one.
type AggregatedServer struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	CAFile string `json:"caFile"`
	Guard  bool   `json:"guard"`
	// Admission has admission of this server see what is written there.
	Admission bool `json:"admission"`
}

// Audit says what is recorded of requests.
type Audit struct {
	Path         string            `json:"path"`
	PolicyFile   string            `json:"policyFile"`
	Format       string            `json:"format"`
	Mode         string            `json:"mode"`
	MaxSize      resource.Quantity `json:"maxSize"`
	MaxBackups   int               `json:"maxBackups"`
	MaxAge       metav1.Duration   `json:"maxAge"`
	Keep         metav1.Duration   `json:"keep"`
	StrangerSize resource.Quantity `json:"strangerSize"`
	EventSize    resource.Quantity `json:"eventSize"`
	Chain        bool              `json:"chain"`
	Webhook      AuditWebhook      `json:"webhook"`
}

// AuditWebhook sends what is recorded to another server.
type AuditWebhook struct {
	ConfigFile string `json:"configFile"`
	PolicyFile string `json:"policyFile"`
	Mode       string `json:"mode"`
}

// Encryption says how objects are stored.
type Encryption struct {
	ConfigFile string `json:"configFile"`
}

// StorageAPI says whether the server lends storage to aggregated API servers, and how much.
type StorageAPI struct {
	Enabled    bool             `json:"enabled"`
	Address    string           `json:"address"`
	Kubeconfig string           `json:"kubeconfig"`
	Limits     StorageAPILimits `json:"limits"`
	Storages   []NamedStorage   `json:"storages"`
}

// StorageAPILimits are the most that one EtcdStorage may have.
type StorageAPILimits struct {
	Keys            int64             `json:"keys"`
	Bytes           resource.Quantity `json:"bytes"`
	ValueBytes      resource.Quantity `json:"valueBytes"`
	Watches         int               `json:"watches"`
	WritesPerSecond int               `json:"writesPerSecond"`
}

// NamedStorage is a storage that an EtcdStorage may name.
type NamedStorage struct {
	Name         string `json:"name"`
	URL          string `json:"url"`
	CAFile       string `json:"caFile"`
	CertFile     string `json:"certFile"`
	KeyFile      string `json:"keyFile"`
	PasswordFile string `json:"passwordFile"`
}

// Backup says where the server puts backups that it takes by itself, and how often.
type Backup struct {
	Directory string          `json:"directory"`
	Every     metav1.Duration `json:"every"`
	Keep      int             `json:"keep"`
}

// Limits bound what is taken of the server.
type Limits struct {
	PriorityAndFairness         bool              `json:"priorityAndFairness"`
	MaxRequestsInFlight         int               `json:"maxRequestsInFlight"`
	MaxMutatingRequestsInFlight int               `json:"maxMutatingRequestsInFlight"`
	Mode                        string            `json:"mode"`
	RequestsPerSecond           float64           `json:"requestsPerSecond"`
	Burst                       int               `json:"burst"`
	RequestsAtOnce              int               `json:"requestsAtOnce"`
	Watches                     int               `json:"watches"`
	WriteRate                   resource.Quantity `json:"writeRate"`
	WriteBurst                  resource.Quantity `json:"writeBurst"`
	NamespaceFactor             int               `json:"namespaceFactor"`
	ObjectSize                  resource.Quantity `json:"objectSize"`
	ObjectsPerResource          int               `json:"objectsPerResource"`
	StoredSize                  resource.Quantity `json:"storedSize"`
	StoredSizePerUser           resource.Quantity `json:"storedSizePerUser"`
	HeaderSize                  resource.Quantity `json:"headerSize"`
	URLSize                     resource.Quantity `json:"urlSize"`
	HistorySize                 resource.Quantity `json:"historySize"`
	CertificateChain            int               `json:"certificateChain"`
	CertificateKeyBits          int               `json:"certificateKeyBits"`
	HeaderTime                  metav1.Duration   `json:"headerTime"`
	BodyTime                    metav1.Duration   `json:"bodyTime"`
	Bodies                      BodyLimits        `json:"bodies"`
	Addresses                   AddressLimits     `json:"addresses"`
	AnswerMemory                resource.Quantity `json:"answerMemory"`
	AnswerMemoryPerUser         resource.Quantity `json:"answerMemoryPerUser"`
	AnswerWait                  metav1.Duration   `json:"answerWait"`
	AnswerStall                 metav1.Duration   `json:"answerStall"`
	LargeRequests               int               `json:"largeRequests"`
	Definitions                 DefinitionLimits  `json:"definitions"`
}

// DefinitionLimits bound what CRDs cost that come through the API.
type DefinitionLimits struct {
	Schemas    int `json:"schemas"`
	Rules      int `json:"rules"`
	AllSchemas int `json:"allSchemas"`
}

// BodyLimits bound what the body of a request holds.
type BodyLimits struct {
	Depth      int `json:"depth"`
	Values     int `json:"values"`
	Members    int `json:"members"`
	Metadata   int `json:"metadata"`
	Operations int `json:"operations"`
}

// AddressLimits bound what the clients of one address take before they are known.
type AddressLimits struct {
	Connections         int      `json:"connections"`
	HandshakesPerSecond float64  `json:"handshakesPerSecond"`
	HandshakeBurst      int      `json:"handshakeBurst"`
	FailuresPerSecond   float64  `json:"failuresPerSecond"`
	FailureBurst        int      `json:"failureBurst"`
	Trusted             []string `json:"trusted"`
}

// Tracing sends spans to a collector.
type Tracing struct {
	Endpoint          string `json:"endpoint"`
	SamplesPerMillion int32  `json:"samplesPerMillion"`
}

// The values of field log.format.
const (
	Text = "text"
	JSON = "json"
)

// Log says what is logged, and how.
type Log struct {
	Verbosity int    `json:"verbosity"`
	Format    string `json:"format"`
}
