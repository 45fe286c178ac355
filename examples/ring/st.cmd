dbLoadTemplate ring.substitutions
dbLoadRecords beam.db P=SR:
asSetFilename ring.acf
set_savefile_path state
set_requestfile_path state
set_pass1_restoreFile info_settings.sav
iocInit
makeAutosaveFiles
create_monitor_set info_settings.req 5
caPutLogInit state/put.log
