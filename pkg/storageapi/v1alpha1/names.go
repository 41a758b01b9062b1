package v1alpha1

// ConditionReady is the condition that the storage can be used, with what the destinations have.
const ConditionReady = "Ready"

// Reasons of [ConditionReady].
const (
	// ReasonCertificatesWritten: the destinations have what they should. True.
	ReasonCertificatesWritten = "CertificatesWritten"
	// ReasonDestinationTaken: at a destination is an object that was not made for this EtcdStorage. False.
	ReasonDestinationTaken = "DestinationTaken"
	// ReasonDestinationFailed: a destination could not be written, for example because its namespace does
	// not exist. False.
	ReasonDestinationFailed = "DestinationFailed"
	// ReasonDestinationUnknown: the destinations had what they should, and cannot be looked at now, for example
	// because the API server that has them is away. True: what was written there is good.
	ReasonDestinationUnknown = "DestinationUnknown"
	// ReasonStorageUnknown: the operator of the server named no storage as spec.storage says. False.
	ReasonStorageUnknown = "StorageUnknown"
	// ReasonMoving: the data is on its way to the storage that spec.storage says. False.
	ReasonMoving = "Moving"
	// ReasonRestoring: the data is replaced by that of a backup, or a restore was interrupted. False.
	ReasonRestoring = "Restoring"
	// ReasonLimitReached: there is no room for more keys or bytes; what makes room works. False.
	ReasonLimitReached = "LimitReached"
)

// What marks the objects at the destinations as made for an EtcdStorage.
const (
	// LabelEtcdStorage has the name of the EtcdStorage.
	LabelEtcdStorage = GroupName + "/etcd-storage"
	// AnnotationUID has the UID of the EtcdStorage.
	AnnotationUID = GroupName + "/etcd-storage-uid"
	// AnnotationAuthorities has when the authorities in a ConfigMap leave it: an object in JSON, with a time
	// (RFC 3339) by the SHA-256 of each certificate, in hexadecimal digits. It is empty for current ones.
	AnnotationAuthorities = GroupName + "/authorities"
)
